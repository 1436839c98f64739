/*
 * One FUSE request: created, parked, answered now or later, or interrupted by its client's signals.
 */
#include "session/request.h"
#include "base/copy.h"
#include "base/daemon.h"
#include "group/journal.h"
#include "host/ticks.h"
#include "session/client.h"
#include "tree/event_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum {
	INLINE_COPY = 32 << 10, /* bytes that the loop copies itself */
	LOOK_MS = 50,		/* between two looks at a client that got a signal */
	DYING_MS = 1000,	/* how long a client that dies waits for its work to end */
	AGE_LOOKS = 4,		/* so often in the longest time a request may wait */
	MS_IN_S = 1000,
	NS_IN_MS = 1000000,
	NS_IN_S = 1000000000
};

/* In the order in which they were parked; those whose client got a signal are in both lists. */
static TAILQ_HEAD(request_list, request) parked = TAILQ_HEAD_INITIALIZER(parked);
static struct request_list signalled = TAILQ_HEAD_INITIALIZER(signalled);
static struct timer *look_timer, *age_timer;
static uint64_t longest_s; /* that a request may be parked */

struct node *
request_node(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? tree_root() : (struct node *)(uintptr_t)ino;
}

fuse_ino_t
request_ino(struct node *n)
{
	return n == tree_root() ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n;
}

bool
request_by_watchdog(fuse_req_t fr)
{
	return fuse_req_ctx(fr)->pid == ticks_watchdog();
}

void
request_show(fuse_req_t fr, const char *op, const struct node *n, const char *name)
{
	struct buf b = {0};

	if (!event_file_tracing() || request_by_watchdog(fr) ||
	    n->row->ops == &event_file_trace_ops)
		return;
	tree_path(n, &b);
	event_file_trace("fuse %s %s%s%s pid=%d", op, b.n ? b.p : "/", name ? " " : "",
	    name ? name : "", (int)fuse_req_ctx(fr)->pid);
	buf_free(&b);
}

/* A failure with a text goes to the group's `error`. */
void
request_fail(fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e)
{
	struct buf b = {0};

	if (e && e->text[0] && n->at.g) {
		tree_path(n, &b);
		if (name)
			buf_addf(&b, "/%s", name);
		journal_fail(n->at.g, e, b.p);
		buf_free(&b);
	}
	fuse_reply_err(fr, -result);
}

/* STAYS: seconds that the kernel may remember a name that lives as long as its parent */
enum { CACHEABLE_S = 3600 };

void
request_entry(struct node *n, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){.ino = (fuse_ino_t)(uintptr_t)n,
	    .generation = n->generation,
	    .entry_timeout = n->row->flags & ROW_CACHEABLE ? CACHEABLE_S : 0};
	tree_stat(n, &e->attr);
}

struct request *
request_new(fuse_req_t fr, request_answer_fn *answer)
{
	struct request *c = xcalloc(1, sizeof(*c));

	c->fr = fr;
	c->answer = answer;
	c->tid = fuse_req_ctx(fr)->pid;
	return c;
}

static void
unpark(struct request *c)
{
	if (!c->parked)
		return;
	fuse_req_interrupt_func(c->fr, NULL, NULL);
	TAILQ_REMOVE(&parked, c, link);
	if (c->interrupted)
		TAILQ_REMOVE(&signalled, c, signalled_link);
	c->parked = c->interrupted = false;
}

void
req_done(struct req *r, int result)
{
	struct request *c = (struct request *)r;
	struct node *n = r->file ? r->file->node : NULL;

	unpark(c);
	if (r->on_done)
		r->on_done(r, result);
	if (result < 0 && r->err.text[0] && n && n->at.g) {
		struct buf b = {0};

		tree_path(n, &b);
		journal_fail(n->at.g, &r->err, b.p);
		buf_free(&b);
	}
	if (c->answer)
		c->answer(c, result);
	else
		fuse_reply_err(c->fr, -result);
	free(c);
}

void
req_data(struct req *r, const void *p, size_t n)
{
	struct request *c = (struct request *)r;

	unpark(c);
	fuse_reply_buf(c->fr, p, n);
	free(c);
}

static void
copied(void *arg, const char *p, ssize_t n)
{
	fuse_req_t fr = arg;

	if (n < 0)
		fuse_reply_err(fr, n == -ESRCH ? EHOSTDOWN : (int)-n);
	else
		fuse_reply_buf(fr, p, (size_t)n);
}

void
req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	struct request *c = (struct request *)r;
	fuse_req_t fr = c->fr;

	unpark(c);
	if (n <= INLINE_COPY) {
		char p[INLINE_COPY];

		copied(fr, p, copy_read(s, offset, p, n));
	} else {
		copy_later(s, offset, n, copied, fr);
	}
	free(c);
}

/* ---- signals ---- */

pid_t
req_process(const struct req *r)
{
	return client_process(((const struct request *)r)->tid);
}

bool
req_by_shell(const struct req *r)
{
	bool shell;

	client_program(((const struct request *)r)->tid, &shell);
	return shell;
}

struct req_client
req_client(const struct req *r)
{
	return client_now(((const struct request *)r)->tid);
}

static void
tell(struct request *c, enum interrupt how)
{
	if (c->on_interrupt)
		c->on_interrupt(&c->r, how);
	else
		req_done(&c->r, -EINTR);
}

/* What its client's signal means for a parked request; one that means nothing leaves it parked. May
 * answer it, and others. */
static void
look_at(struct request *c)
{
	enum client_wish wish = client_wish(c->tid);
	uint64_t waited_ms = (now_ns() - c->told_at) / NS_IN_MS;

	/* a read is made again after any signal */
	if (wish == CLIENT_NONE && c->is_read)
		wish = CLIENT_STOP;
	if (wish == CLIENT_PAUSE) {
		tell(c, DETACH);
	} else if (wish != CLIENT_NONE && !c->told) {
		c->told = true;
		c->told_at = now_ns();
		tell(c, STOP_WORK);
	} else if (wish == CLIENT_GONE || (wish == CLIENT_DYING && waited_ms >= DYING_MS)) {
		tell(c, DETACH);
	}
}

/* The kernel tells of one signal only: we look again ourselves until the request is answered. An
 * answer may bring others with it, so each is taken from the head, once in a round. */
static void
look(void *arg)
{
	static uint64_t round;
	struct request *c;

	look_timer = NULL;
	round++;
	while ((c = TAILQ_FIRST(&signalled)) && c->round != round) {
		c->round = round;
		TAILQ_REMOVE(&signalled, c, signalled_link);
		TAILQ_INSERT_TAIL(&signalled, c, signalled_link);
		look_at(c);
	}
	if (!TAILQ_EMPTY(&signalled) && !look_timer)
		look_timer = loop_timer(daemon_.loop, LOOK_MS, look, NULL);
}

static void
on_interrupt(fuse_req_t fr, void *arg)
{
	struct request *c = arg;

	if (!c->interrupted) {
		c->interrupted = true;
		TAILQ_INSERT_TAIL(&signalled, c, signalled_link);
	}
	/* not here: libfuse is in the middle of it */
	loop_timer_del(look_timer);
	look_timer = loop_timer(daemon_.loop, 0, look, NULL);
}

/* Lets go of who has waited too long: a writer as after Ctrl-Z, a reader with EINTR. */
static void
detach_old(void *arg)
{
	struct request *c;

	age_timer = NULL;
	while ((c = TAILQ_FIRST(&parked)) && now_ns() - c->since >= longest_s * NS_IN_S) {
		note("a request waited %llu s: let go before the kernel's limit",
		    (unsigned long long)longest_s);
		tell(c, DETACH);
	}
	if (c)
		age_timer =
		    loop_timer(daemon_.loop, longest_s * MS_IN_S / AGE_LOOKS, detach_old, NULL);
}

void
request_longest(uint64_t seconds)
{
	longest_s = seconds;
}

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	struct request *c = (struct request *)r;

	c->on_interrupt = fn;
	if (c->parked)
		return PARKED;
	c->parked = true;
	c->since = now_ns();
	if (!age_timer)
		age_timer =
		    loop_timer(daemon_.loop, longest_s * MS_IN_S / AGE_LOOKS, detach_old, NULL);
	TAILQ_INSERT_TAIL(&parked, c, link);
	fuse_req_interrupt_func(c->fr, on_interrupt, c);
	return PARKED;
}

void
request_fini(void)
{
	struct request *c;

	loop_timer_del(look_timer);
	loop_timer_del(age_timer);
	look_timer = age_timer = NULL;
	while ((c = TAILQ_FIRST(&parked)))
		req_done(&c->r, -ENODEV);
}
