/* fuse.c's private face: the session, and one call that is answered now or later (call.c). */
#ifndef CALL_H
#define CALL_H
#include "tree.h"
#include <fuse_lowlevel.h>

enum call_kind { CALL_OPEN, CALL_CREATE, CALL_READ, CALL_SYNC };

struct call {
	struct req r; /* first: a struct req is a struct call */
	fuse_req_t fr;
	enum call_kind kind;
	struct fuse_file_info fi; /* OPEN, CREATE */
	struct node *created;	  /* CREATE */
	pid_t tid;
	uint64_t since; /* now_ns when it was parked */
	req_interrupt_fn *on_interrupt;
	bool parked, interrupted, told; /* told: who parks it knows of the signal */
	TAILQ_ENTRY(call) link;		/* among the parked */
};

extern const struct fuse_lowlevel_ops fuse_ops;

/* The node that a request is about; the tree keeps it as long as the kernel does. */
struct node *call_node(fuse_ino_t ino);
bool call_by_warden(fuse_req_t fr);
/* A line of `trace`; name: a child of n that is meant, or NULL. */
void call_show(fuse_req_t fr, const char *op, const struct node *n, const char *name);
/* Answers with -result; a text goes to the group's `error`. */
void call_fail(
    fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e);

struct call *call_new(fuse_req_t fr, enum call_kind kind);
/* Opens n for an OPEN or CREATE, which is answered now or later (fuse.c). */
void call_open(struct call *c, struct node *n);
/* Answers it (fuse.c). */
void call_opened(struct call *c, int result);
void call_init(void *userdata, struct fuse_conn_info *conn);
/* Does this kernel map files that are read directly? */
bool call_direct_mmap(void);

#endif
