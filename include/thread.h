/* Threads in addition to the one that runs the loop, or Python. */
#ifndef THREAD_H
#define THREAD_H
#include <pthread.h>

typedef void *thread_fn(void *arg);

/* Starts a thread that receives no signals. Returns 0, or a positive errno value. */
int thread_start(pthread_t *thread, thread_fn *fn, void *arg);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC. */
void thread_cond(pthread_cond_t *cond);

#endif
