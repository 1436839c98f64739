/* fuse.c's private face: the session, and one call that is answered now or later (call.c). */
#ifndef REQUEST_H
#define REQUEST_H
#include "tree/tree.h"
#include <fuse_lowlevel.h>

enum request_kind { REQUEST_OPEN, REQUEST_CREATE, REQUEST_READ, REQUEST_SYNC, REQUEST_LOOKUP };

struct request {
	struct req r; /* first: a struct req is a struct request */
	fuse_req_t fr;
	enum request_kind kind;
	struct fuse_file_info fi; /* OPEN, CREATE */
	struct node *created;	  /* CREATE, LOOKUP: what is given to the kernel if all is well */
	pid_t tid;
	uint64_t since; /* now_ns when it was parked */
	req_interrupt_fn *on_interrupt;
	bool parked, interrupted, told; /* told: who parks it knows of the signal */
	TAILQ_ENTRY(request) link;	/* among the parked */
};

extern const struct fuse_lowlevel_ops fuse_ops;

/* The node that a request is about; the tree keeps it as long as the kernel does. */
struct node *request_node(fuse_ino_t ino);
bool request_by_watchdog(fuse_req_t fr);
/* A line of `trace`; name: a child of n that is meant, or NULL. */
void request_show(fuse_req_t fr, const char *op, const struct node *n, const char *name);
/* Answers with -result; a text goes to the group's `error`. */
void request_fail(
    fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e);

struct request *request_new(fuse_req_t fr, enum request_kind kind);
/* Opens n for an OPEN or CREATE, which is answered now or later (fuse.c). */
void request_open(struct request *c, struct node *n);
/* Answers it (fuse.c). */
void request_opened(struct request *c, int result);
void request_init(void *userdata, struct fuse_conn_info *conn);
/* Does this kernel map files that are read directly? */
bool request_direct_mmap(void);

#endif
