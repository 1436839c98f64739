/* What the requests of all front ends have in common: how they are parked, told of signals, and
 * answered. */
#ifndef FRONT_H
#define FRONT_H
#include "tree/tree.h"

/* A front end: what it does with its requests. The first three answer one, and free it. */
struct front {
	void (*done)(struct req *r, int result); /* 0 or -errno */
	void (*data)(struct req *r, const void *p, size_t n);
	/* with n bytes of the source, which the copy threads read */
	void (*copy)(struct req *r, const struct source *s, uint64_t offset, size_t n);
	/* It has been parked, and its client's signals are waited for; it is so no more. */
	void (*park)(struct req *r);
	void (*unpark)(struct req *r);
	/* As req_process, req_by_shell, req_client. */
	pid_t (*process)(const struct req *r);
	bool (*by_shell)(const struct req *r);
	struct req_client (*client)(const struct req *r);
};

/* Its client's signal: whoever parks r is told, and may answer it. */
void front_tell(struct req *r, enum interrupt how);
/* The errno for a client whose bytes a copy thread could not read: result is -errno. */
int front_copy_errno(ssize_t result);
/* A failure with a text goes to the group's `error`; name: a child of n that is meant, or NULL. */
void front_journal(const struct node *n, const char *name, const struct err *e);
/* A line of `trace`, from a front end of this name, about n or its child `name` (NULL: n itself);
 * more: what follows. Nothing about `trace` itself. */
void front_trace(
    const char *front, const char *op, const struct node *n, const char *name, const char *more);

#endif
