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
	struct node *created;     /* CREATE */
	pid_t tid;
	uint64_t since; /* now_ns when it was parked */
	req_interrupt_fn *on_interrupt;
	bool parked, interrupted, told; /* told: who parks it knows of the signal */
	TAILQ_ENTRY(call) link; /* among the parked */
};

extern const struct fuse_lowlevel_ops fuse_ops;

struct call *call_new(fuse_req_t fr, enum call_kind kind);
/* Answers an OPEN or CREATE (fuse.c). */
void call_opened(struct call *c, int result);
void call_init(void *userdata, struct fuse_conn_info *conn);
/* Does this kernel map files that are read directly? */
bool call_direct_mmap(void);

#endif
