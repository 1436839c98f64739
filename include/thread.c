/*
 * Threads that receive no signals, condition variables that clock changes do not affect, and the
 * time slice of threads that answer others.
 *
 * Slices: Linux 6.12, kernel/sched/syscalls.c, __setscheduler_params(): sched_runtime of
 * SCHED_OTHER; "EEVDF Scheduler" of the kernel's documentation.
 */
#include "thread.h"
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	RESET_ON_FORK = 1, /* SCHED_FLAG_RESET_ON_FORK of linux/sched.h */
	SLICE_NS = 100000  /* the shortest that the kernel takes */
};

/* struct sched_attr of linux/sched/types.h, its first version; glibc declares it from 2.41 on. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

int
thread_start(pthread_t *thread, thread_fn *fn, void *arg)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

void
thread_short_slice(void)
{
	struct attributes a = {0};

	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) < 0 || a.policy != SCHED_OTHER ||
	    a.runtime == 0 || /* before Linux 6.12 */
	    a.nice < 0)	      /* RESET_ON_FORK would take that from children */
		return;
	a.size = sizeof(a);
	a.flags |= RESET_ON_FORK;
	a.runtime = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &a, 0);
}

void
thread_cond(pthread_cond_t *cond)
{
	pthread_condattr_t clock;

	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &clock);
	pthread_condattr_destroy(&clock);
}
