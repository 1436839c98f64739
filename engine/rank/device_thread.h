/*
 * The thread that calls CUDA, and the queue of its jobs, which it begins in order. Device work is
 * left to it and to the threads of rank_nccl.c and rank_revoke.c, because a call may block for as
 * long as the driver likes.
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
	int device; /* JOB_OWNER: where the query runs; then the owner of the memory */
	uint64_t address;
	char *host; /* in the memory that was passed to device_thread_start() */
	size_t n;
	struct CUstream_st *stream; /* JOB_MARK: NULL is the default stream */
	uint64_t free, total;	    /* JOB_MEMORY */
	struct err err;		    /* no is 0 on success */
	/* Called on the thread when the job is done; takes ownership of the job. NULL: a caller
	 * waits for the job. */
	void (*ended)(struct job *j);
	int slot; /* up to handle: for the submitter's use */
	uint64_t tag;
	uint32_t handle;
	bool begun, done; /* from here on: the thread's */
	struct CUevent_st *event;
	STAILQ_ENTRY(job) link;
};

/* Call it once. memory: size bytes that are shared with the daemon; they are registered with CUDA
 * when the first device is used. */
int device_thread_start(char *memory, size_t size, struct err *e);
void device_thread_submit(struct job *j);
/* Waits until the job is done. Returns false if the deadline passes first (NULL: no deadline). */
bool device_thread_await(struct job *j, const struct timespec *until);
/* Gives up waiting for the job; ended frees it later. Returns false if the job is already done or,
 * unless it is a mark, was never begun: the caller still owns it then. */
bool device_thread_abandon(struct job *j, void (*ended)(struct job *j));
/* Around a fork. */
void device_thread_lock(void);
void device_thread_unlock(void);

#endif
