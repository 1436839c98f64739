/*
 * Where bytes are, and reads of ranges of them. Those of files and processes can be copied at once,
 * and others are made when they are read; for the rest a provider is asked, and answers later.
 */
#ifndef SOURCE_H
#define SOURCE_H
#include "err.h"
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>

/* Bulk data needs no copy in the reader's own memory. */
enum source_kind { SOURCE_MEMORY, SOURCE_FD, SOURCE_PROCESS, SOURCE_MAKER, SOURCE_PROVIDER };

struct source {
	enum source_kind kind; /* of the data after the head; SOURCE_MEMORY: there is none */
	const char *head;
	uint64_t head_n;
	uint64_t size; /* with the head; 0: not stated, so nothing is read ahead */
	int fd;	       /* SOURCE_FD: read from offset 0 */
	/* SOURCE_PROCESS: process_vm_readv from addr on. The pidfd was opened while the process was
	 * alive: it shows whether the pid still belongs to that process. */
	pid_t pid;
	int pidfd;
	uint64_t addr;
	struct maker *maker;	   /* SOURCE_MAKER */
	struct provider *provider; /* SOURCE_PROVIDER: only source_read() reads it */
	/* Called on any thread when the bytes are no longer needed. NULL: no callback. */
	void (*sent)(void *arg);
	void *sent_arg;
};

/* Bytes that are made when they are read. */
struct maker {
	/* Makes n bytes from this offset on. Returns their number, or -errno. Called on any thread,
	 * also on several at once. */
	ssize_t (*make)(struct maker *m, uint64_t offset, char *p, size_t n);
	/* The last user has gone. Called once, on any thread. */
	void (*unused)(struct maker *m);
	atomic_int users; /* its owner, who sets it to 1, and each copy of a source that is held */
};

struct range;
/* Called once, on the loop, and the range is free: with bytes that source_copy() can read until
 * their sent() is called, or with NULL and an error. */
typedef void range_fn(struct range *x, const struct source *bytes, const struct err *e);

/* A pending read from a provider, in the memory of its reader. */
struct range {
	range_fn *done; /* done and arg are set by the reader */
	void *arg;
	struct provider *of;
	struct slice head; /* what is requested of the head: it comes first */
	uint64_t offset;   /* what follows: n bytes from this offset after the head */
	size_t n;
	TAILQ_ENTRY(range) link;       /* in the provider's list */
	TAILQ_ENTRY(range) queue_link; /* for the provider's use */
};

struct provider {
	const struct provider_ops *ops;
	TAILQ_HEAD(ranges, range) ranges; /* in the order of the reads */
};

struct provider_ops {
	/* Adds x to the list of ranges. It is answered with range_answer(), perhaps before read()
	 * returns, and with less than n bytes if so many are too many. */
	void (*read)(struct range *x);
	void (*cancel)(struct range *x); /* x is in the list no more, and must not be used */
	void (*free)(struct provider *p);
};

/* Copies n bytes of the source at offset to p. Returns the number copied, or -errno. May be called
 * on any thread. */
ssize_t source_copy(const struct source *s, uint64_t offset, char *p, size_t n);
/* May its process's memory be read? Reads none, as that may wait for a file that is mapped there.
 * Returns 0, or -errno: -EPERM by the rules for ptrace, -ESRCH if the process is gone. */
int source_permits(const struct source *s);
/* Keeps what comes after the head of this copy of a source readable, whatever its owner closes,
 * until source_release(). False: no descriptor is left. */
bool source_hold(struct source *s);
void source_release(struct source *s);
/* The owner of a maker leaves it. True: there are no other users, and unused() is not called. */
bool maker_leave(struct maker *m);
/* Starts the copy threads, at least one. Returns -errno with *e set if there can be none. */
int copy_start(struct err *e);
void copy_stop(void); /* call after the last job */
/* Calls fn(arg, bytes, n or -errno) on a copy thread, then the source's sent(); at once if no
 * descriptor is left. The source is held meanwhile. */
void copy_later(const struct source *s, uint64_t offset, size_t n,
    void (*fn)(void *arg, const char *p, ssize_t n), void *arg);

/* The number of copy threads that have no job now. */
int copy_idle(void);
/* Calls fn(arg) on a copy thread. */
void copy_call(void (*fn)(void *arg), void *arg);

/* Reads up to n bytes from a provider, from this offset of the source on; the head is included.
 * Does not block. */
void source_read(const struct source *s, struct range *x, uint64_t offset, size_t n);
/* x->done() is not called any more. */
void range_cancel(struct range *x);
/* For providers: ends a read. bytes: those requested of the head, and those after it. */
void range_answer(struct range *x, const struct source *bytes, const struct err *e);
/* Pending reads end with ECANCELED. NULL-safe. */
void provider_free(struct provider *p);

#endif
