/*
 * The thread that calls CUDA: what it is asked to do, one job after another. Only it does, and that
 * of rank_nccl.c: a call may block for as long as the driver likes.
 */
#ifndef DEVICE_THREAD_H
#define DEVICE_THREAD_H
#include "err.h"
#include <pthread.h>
#include <sys/queue.h>
#include <time.h>

struct CUevent_st;
struct CUstream_st;

enum job_kind { JOB_OUT, JOB_IN, JOB_OWNER, JOB_MARK, JOB_MEMORY };

struct job {
	enum job_kind kind;
	int device; /* JOB_OWNER: asked first; then, whose memory it is */
	uint64_t address;
	char *host; /* of the memory that device_thread_start() gave */
	size_t n;
	struct CUstream_st *stream; /* JOB_MARK: NULL is the default one */
	uint64_t free, total;	    /* JOB_MEMORY */
	struct err err;		    /* no 0: it went well */
	/* Called in the thread when the job is done, which is then whose this is; NULL: somebody
	 * waits. */
	void (*ended)(struct job *j);
	int slot; /* what follows is of who submits it */
	uint32_t tag, handle;
	bool begun, done; /* the thread's, as all below */
	struct CUevent_st *event;
	STAILQ_ENTRY(job) link;
};

/* Once. memory: so many bytes, shared with the daemon, which are registered with CUDA when the
 * first device is used. */
int device_thread_start(char *memory, size_t size, struct err *e);
void device_thread_submit(struct job *j);
/* Waits until the job is done; false: the time is over (NULL: there is no such time). */
bool device_thread_await(struct job *j, const struct timespec *until);
/* Nobody waits for it any more; ended frees it. False: it is done already, or, but for a mark,
 * never begun. */
bool device_thread_abandon(struct job *j, void (*ended)(struct job *j));
/* Around a fork. */
void device_thread_lock(void);
void device_thread_unlock(void);

#endif
