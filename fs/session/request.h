/* Private to this folder: one FUSE request, which is answered now or later, and who answers it. */
#ifndef REQUEST_H
#define REQUEST_H
#include "front/front.h"
#include <fuse_lowlevel.h>

struct request;

/* Answers it without data: 0 or -errno. It is freed behind. */
typedef void request_answer_fn(struct request *c, int result);

struct request {
	struct req r; /* first: a struct req is a struct request */
	fuse_req_t fr;
	request_answer_fn *answer;
	bool made_again; /* by shells (read) or the kernel (lock) where a signal means nothing */
	struct fuse_file_info fi; /* OPEN, CREATE */
	struct node *created;	  /* CREATE, LOOKUP: what is given to the kernel if all is well */
	pid_t tid;
	uint64_t since;		   /* now_ns when it was parked */
	TAILQ_ENTRY(request) link; /* among the parked */
	bool interrupted;	   /* its client got a signal */
	TAILQ_ENTRY(request) signalled_link;
	uint64_t round;	  /* of looks, in which it was looked at last */
	bool told;	  /* who parks it knows that it shall end */
	uint64_t told_at; /* now_ns */
};

/* The node that a request is about; the tree keeps it as long as the kernel does. */
struct node *request_node(fuse_ino_t ino);
fuse_ino_t request_ino(struct node *n);
bool request_by_watchdog(fuse_req_t fr);
/* A line of `trace`; name: a child of n that is meant, or NULL. */
void request_show(fuse_req_t fr, const char *op, const struct node *n, const char *name);
/* Answers with -result; a text goes to the group's `error`. */
void request_fail(
    fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e);

/* answer NULL: the errno alone. */
struct request *request_new(fuse_req_t fr, request_answer_fn *answer);
/* What the kernel is to know of a node that it is given. */
void request_entry(struct node *n, struct fuse_entry_param *e);
/* So long may a request be parked. */
void request_longest(uint64_t seconds);
/* Answers every parked request: nobody else will. */
void request_fini(void);
/* Does this kernel map files that are read directly? (session.c) */
bool session_direct_mmap(void);
/* The session, for notices to the kernel; NULL: there is none (any more). */
struct fuse_session *session_fuse(void);

#endif
