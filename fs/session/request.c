/*
 * One FUSE request: created, parked, answered now or later, or interrupted by its client's signals.
 */
#include "session/request.h"
#include "base/ahead.h"
#include "base/daemon.h"
#include "host/ticks.h"
#include "session/client.h"
#include "tree/event_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	LOOK_MS = 50,	 /* interval between looks at a client that got a signal */
	DYING_MS = 1000, /* how long a dying client waits for its work to end */
	AGE_LOOKS = 4	 /* age checks per longest time that a request may wait */
};

/* In the order of parking. Requests whose client got a signal are in both lists. */
static TAILQ_HEAD(request_list, request) parked = TAILQ_HEAD_INITIALIZER(parked);
static struct request_list signalled = TAILQ_HEAD_INITIALIZER(signalled);
static struct timer *look_timer, *age_timer;
static uint64_t longest_s; /* longest time that a request may be parked */

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
	pid_t watchdog = ticks_watchdog();

	/* while there is none: 0, which is also the pid of clients in other pid namespaces */
	return watchdog && fuse_req_ctx(fr)->pid == watchdog;
}

void
request_show(fuse_req_t fr, const char *op, const struct node *n, const char *name)
{
	char pid[32];

	if (!event_file_tracing() || request_by_watchdog(fr))
		return;
	snprintf(pid, sizeof(pid), "pid=%d", (int)fuse_req_ctx(fr)->pid);
	front_trace("fuse", op, n, name, pid);
}

/* A failure that has a text also goes to the group's `error`. */
void
request_fail(fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e)
{
	if (e)
		front_journal(n, name, e);
	request_error(fr, -result);
}

/* ROW_CACHEABLE: seconds that the kernel may cache a name that lives as long as its parent */
enum { CACHEABLE_S = 3600 };

void
request_entry(struct node *n, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){.ino = (fuse_ino_t)(uintptr_t)n,
	    .generation = n->generation,
	    .entry_timeout = n->row->flags & ROW_CACHEABLE ? CACHEABLE_S : 0};
	tree_stat(n, &e->attr);
}

/* ---- answers ---- */

static void
answer_done(struct req *r, int result)
{
	struct request *c = (struct request *)r;

	front_failed(r, result);
	if (c->answer)
		c->answer(c, result);
	else
		request_error(c->fr, -result);
	free(c);
}

static void
answer_data(struct req *r, const void *p, size_t n)
{
	struct request *c = (struct request *)r;

	if (!c->r.file || !c->r.file->ahead) /* else it is a small piece of what is read ahead */
		ahead_expire();
	fuse_reply_buf(c->fr, p, n);
	free(c);
}

/* Runs on a copy thread. */
static void
copied(void *arg, const char *p, ssize_t n)
{
	fuse_req_t fr = arg;

	if (n < 0)
		request_error(fr, req_copy_errno(n));
	else
		fuse_reply_buf(fr, p, (size_t)n);
}

static void
answer_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	struct request *c = (struct request *)r;

	if (!s->size) /* no object: it may tell of a change */
		ahead_expire();
	ahead_read(&r->file->ahead, s, offset, n, copied, c->fr);
	free(c);
}

/* ---- the client ---- */

static pid_t
process_of(const struct req *r)
{
	return client_process(((const struct request *)r)->tid);
}

static struct req_client
client_of(const struct req *r)
{
	return client_now(((const struct request *)r)->tid);
}

/* ---- signals ---- */

/* Acts on the signals of a parked request's client. One without meaning leaves the request parked.
 * May answer it, and others. */
static void
look_at(struct request *c)
{
	enum client_wish wish = client_wish(c->tid);
	uint64_t waited_ms = (now_ns() - c->told_at) / NS_PER_MS;
	/* of a client in another PID namespace nothing is known */
	bool ends = c->tid && (wish == CLIENT_DYING || wish == CLIENT_GONE);

	/* reads and lock waits are retried after any signal, so it is safe to end them */
	if (wish == CLIENT_NONE && c->made_again)
		wish = CLIENT_STOP;
	if (wish == CLIENT_PAUSE) {
		req_interrupt(&c->r, DETACH);
	} else if (wish != CLIENT_NONE && (!c->told || (ends && !c->ends))) {
		c->told = true;
		c->ends = ends;
		c->told_at = now_ns();
		req_interrupt(&c->r, ends ? CLIENT_ENDS : STOP_WORK);
	} else if (wish == CLIENT_GONE || (wish == CLIENT_DYING && waited_ms >= DYING_MS)) {
		req_interrupt(&c->r, DETACH);
	}
}

/* The kernel reports only one signal, so we keep looking until the request is answered. Answering
 * one may answer others, so each is taken from the head, once per round. */
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
	/* not here: libfuse is still processing the interrupt */
	loop_timer_del(look_timer);
	look_timer = loop_timer(daemon_.loop, 0, look, NULL);
}

/* Releases requests that have waited too long: a writer as after Ctrl-Z, a reader with EINTR. */
static void
detach_old(void *arg)
{
	struct request *c;

	age_timer = NULL;
	while ((c = TAILQ_FIRST(&parked)) && now_ns() - c->since >= longest_s * NS_PER_S) {
		note("a request waited %llu s: let go before the kernel's limit",
		    (unsigned long long)longest_s);
		req_interrupt(&c->r, DETACH);
	}
	if (c)
		age_timer =
		    loop_timer(daemon_.loop, longest_s * MS_PER_S / AGE_LOOKS, detach_old, NULL);
}

void
request_longest(uint64_t seconds)
{
	longest_s = seconds;
}

static void
park(struct req *r)
{
	struct request *c = (struct request *)r;

	c->since = now_ns();
	if (!age_timer)
		age_timer =
		    loop_timer(daemon_.loop, longest_s * MS_PER_S / AGE_LOOKS, detach_old, NULL);
	TAILQ_INSERT_TAIL(&parked, c, link);
	fuse_req_interrupt_func(c->fr, on_interrupt, c);
}

static void
unpark(struct req *r)
{
	struct request *c = (struct request *)r;

	fuse_req_interrupt_func(c->fr, NULL, NULL);
	TAILQ_REMOVE(&parked, c, link);
	if (c->interrupted)
		TAILQ_REMOVE(&signalled, c, signalled_link);
	c->interrupted = false;
}

static const struct req_ops session_front = {
    .done = answer_done,
    .data = answer_data,
    .copy = answer_copy,
    .park = park,
    .unpark = unpark,
    .process = process_of,
    .client = client_of,
};

struct request *
request_new(fuse_req_t fr, request_answer_fn *answer)
{
	struct request *c = xcalloc(1, sizeof(*c));

	c->r.ops = &session_front;
	c->fr = fr;
	c->answer = answer;
	c->tid = fuse_req_ctx(fr)->pid;
	c->r.uid = fuse_req_ctx(fr)->uid;
	return c;
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
