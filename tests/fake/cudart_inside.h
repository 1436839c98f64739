/* Shared by the files of the fake CUDA runtime. */
#ifndef FAKE_CUDART_INSIDE_H
#define FAKE_CUDART_INSIDE_H
#include "cudart.h"
#include "rank/cuda_api.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

enum { GPUS_MAX = 8, FAILURES_MAX = 16, HOST_MAX = 64 };

enum { dcudaErrorInvalidValue = 1, dcudaErrorInvalidDevice = 101 };

#define X(name, type, args, needed) type name args;
CUDA_CALLS(X)
#undef X

struct task {
	void *to;
	const void *from;
	size_t n;
	struct CUevent_st *event; /* to be recorded, or waited for */
	uint64_t number;
	bool waits, holds;
	void (*fn)(void *arg);
	void *arg;
	STAILQ_ENTRY(task) link;
};

STAILQ_HEAD(tasks, task);

struct CUstream_st {
	pthread_t thread;
	struct tasks tasks;
	bool busy, ends, started, captured;
};

struct CUevent_st {
	uint64_t recorded, reached;
};

struct block { /* memory of a device: the host accesses it at `bytes` */
	char *address, *bytes;
	size_t size;
	int device;
	struct block *next;
};

struct state {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int gpus, driver; /* driver: the version of CUDA that it supports; 0: there is none */
	useconds_t delay;
	bool read, held, implicit_capture;
	unsigned lost, contexts;
	struct block *blocks;
	struct CUstream_st legacy;

	struct failure {
		char call[64];
		unsigned error;
		int after, times;
	} failures[FAILURES_MAX];

	struct {
		const char *p;
		size_t n;
	} host[HOST_MAX]; /* registered */

	int failure_count, host_count, pageable, broken, live;
	uint64_t copied;
};

extern struct state fake;
extern bool fake_stalled;	      /* do calls that need a device block? */
extern bool fake_waits;		      /* do copies with unregistered host memory block, too? */
extern int fake_stalled_calls;	      /* calls that need a device and are blocked */
extern __thread int fake_device;      /* of this thread */
extern __thread unsigned fake_result; /* of its last call */

void fake_lock(void);
void fake_unlock(void);
/* Call this and all functions below with the lock held. Returns the result of this call. device:
 * the call uses a device's context. */
unsigned fake_say(const char *call, bool device);
void fake_read_words(void);
void fake_add_failure(const char *call, size_t n, unsigned error, int after, int times);
struct block *fake_block(const void *p, size_t n);
void *fake_bytes(const void *p, size_t n); /* NULL: not within a block */
/* Adds a copy of the task to the stream (NULL: the default one). */
void fake_enqueue(struct CUstream_st *s, struct task t);

#endif
