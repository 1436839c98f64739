/* Private to this folder: one FUSE request, answered immediately or later, and its answer
 * function. */
#ifndef REQUEST_H
#define REQUEST_H
#include "front/front.h"
#include <fuse_lowlevel.h>

struct request;

/* Answers c without data: 0 or -errno. The caller then frees c. */
typedef void request_answer_fn(struct request *c, int result);

struct request {
	struct req r; /* must be first: a struct req is cast to this */
	fuse_req_t fr;
	request_answer_fn *answer;
	bool made_again; /* retried by shells (read), the kernel (lock) if a signal means nothing */
	struct fuse_file_info fi; /* OPEN, CREATE */
	struct node *created;	  /* CREATE, LOOKUP: the node that the kernel gets on success */
	pid_t tid;
	uint64_t since;		   /* now_ns when it was parked */
	TAILQ_ENTRY(request) link; /* in the list of parked requests */
	bool interrupted;	   /* its client got a signal */
	TAILQ_ENTRY(request) signalled_link;
	uint64_t round;	  /* the last round of look() that visited it */
	bool told, ends;  /* STOP_WORK has been passed on; CLIENT_ENDS */
	uint64_t told_at; /* now_ns at that time */
};

/* The node that a request is about. Borrowed: the tree keeps it as long as the kernel refers to
 * it. */
struct node *request_node(fuse_ino_t ino);
fuse_ino_t request_ino(struct node *n);
bool request_by_watchdog(fuse_req_t fr);
/* Writes a line to `trace`. name: the child of n that is meant, or NULL. */
void request_show(fuse_req_t fr, const char *op, const struct node *n, const char *name);

/* Answers with an errno, or success (0). The only function that calls fuse_reply_err(). */
static inline void
request_error(fuse_req_t fr, int no)
{
	fuse_reply_err(fr, front_errno(no));
}

#pragma GCC poison fuse_reply_err
/* Answers with errno -result. If e has a text, it goes to the group's `error`. */
void request_fail(
    fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e);

/* Allocates a request. answer may be NULL if the reply is just an errno. */
struct request *request_new(fuse_req_t fr, request_answer_fn *answer);
/* Fills in what the kernel needs to know about a node that it is given. */
void request_entry(struct node *n, struct fuse_entry_param *e);
/* Sets the longest time that a request may be parked. */
void request_longest(uint64_t seconds);
/* Answers every parked request, since nothing else will. */
void request_fini(void);
/* Can this kernel map files that use direct I/O? (session.c) */
bool session_direct_mmap(void);
/* The session, for notifications to the kernel; NULL before its start and after its end. */
struct fuse_session *session_fuse(void);

#endif
