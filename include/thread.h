/* Threads in addition to the one that runs the loop, or Python. */
#ifndef THREAD_H
#define THREAD_H
#include <pthread.h>

typedef void *thread_fn(void *arg);

/* Starts a thread that receives no signals. Returns 0, or a positive errno value. */
int thread_start(pthread_t *thread, thread_fn *fn, void *arg);
/* Asks the kernel to run this thread soon after it wakes, for a short time, where other threads
 * keep the processors busy; it gets no more time in total. Not inherited. No effect before
 * Linux 6.12, or where the user has chosen another policy. */
void thread_short_slice(void);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC. */
void thread_cond(pthread_cond_t *cond);

#endif
