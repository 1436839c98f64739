/* Threads of ours beside the one that runs the loop, or Python. */
#ifndef THREAD_H
#define THREAD_H
#include <pthread.h>

typedef void *thread_fn(void *arg);

/* Starts a thread to which no signal is ever delivered. 0, or an errno. */
int thread_start(pthread_t *thread, thread_fn *fn, void *arg);
/* Makes a condition whose timed waits go by CLOCK_MONOTONIC. */
void thread_cond(pthread_cond_t *cond);

#endif
