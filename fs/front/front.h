/* What the requests of all front ends have in common: how they are parked, interrupted by signals,
 * and answered. */
#ifndef FRONT_H
#define FRONT_H
#include "tree/tree.h"

/* A front end: its operations on its requests. Each of the first three answers a request and frees
 * it. */
struct front {
	void (*done)(struct req *r, int result); /* 0 or -errno */
	void (*data)(struct req *r, const void *p, size_t n);
	/* with n bytes of the source, read by the copy threads */
	void (*copy)(struct req *r, const struct source *s, uint64_t offset, size_t n);
	/* park: r has been parked; from now on pass on signals of its client. unpark: r is no
	 * longer parked. */
	void (*park)(struct req *r);
	void (*unpark)(struct req *r);
	/* As req_process, req_client. */
	pid_t (*process)(const struct req *r);
	struct req_client (*client)(const struct req *r);
};

/* Passes a signal of the client on to the code that parked r, which may answer r. */
void front_tell(struct req *r, enum interrupt how);
/* The errno for a client whose data a copy thread could not read; result is the thread's -errno. */
int front_copy_errno(ssize_t result);
/* The errno that a client's kernel may get for no: no itself, or EIO, said in the log. ENOSYS would
 * make the kernel never ask for that operation again, and a number that it uses itself (512 and
 * more) is refused as an answer, so that the client would wait for ever. 0 is success. */
int front_errno(int no);
/* Adds a failure that has a text to the group's `error`. name: the child of n that is meant, or
 * NULL. */
void front_journal(const struct node *n, const char *name, const struct err *e);
/* Writes a line to `trace`: the name of the front end, the operation, n or its child `name` (NULL:
 * n itself), and more. Operations on `trace` itself are not traced. */
void front_trace(
    const char *front, const char *op, const struct node *n, const char *name, const char *more);

#endif
