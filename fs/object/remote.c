/*
 * Ranges are requested in pieces, all at once. After a sequential read more pieces are requested:
 * as many bytes as can be in flight without queueing at the link.
 */
#include "object/remote.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECE = 256 << 10,    /* per Tread: other messages can go in between */
	AHEAD_MIN = 1 << 20,  /* smallest read-ahead window, in bytes */
	AHEAD_MAX = 16 << 20, /* largest: more than an ssh connection carries in 100 ms */
	FRESH_MS = 1000,      /* older data is requested again: ranks keep writing */
	QUEUED_MS = 20	      /* a reply that is this much slower than expected has queued */
};

/* Bytes of the object that were requested. */
struct piece {
	TAILQ_ENTRY(piece) link;
	struct remote *o;	      /* NULL: no longer wanted */
	uint64_t offset, asked, came; /* came 0: in flight */
	size_t n;
	struct err err;
	char bytes[];
};

/* A READ that waits for pieces: its result is the head's bytes, then the object's from offset to
 * end. */
struct range {
	TAILQ_ENTRY(range) link;
	struct req *r;
	uint64_t offset, end;
	size_t head_n;
	char bytes[];
};

struct remote {
	struct agent *agent;
	int slot;
	uint32_t handle;
	uint64_t size;
	TAILQ_HEAD(pieces, piece) pieces; /* by offset; they do not overlap */
	TAILQ_HEAD(ranges, range) waiting;
	uint64_t next;	   /* where a sequential read would continue */
	uint64_t in_order; /* bytes read sequentially after the first READ */
	uint64_t ahead;	   /* bytes requested from `next` on */
	size_t window;	   /* the limit for `ahead` */
	uint64_t least_ns; /* the fastest reply; 0: none yet */
};

struct remote *
remote_new(struct agent *a, int slot, uint32_t handle, uint64_t size)
{
	struct remote *o = xcalloc(1, sizeof(*o));

	*o = (struct remote){.agent = a,
	    .slot = slot,
	    .handle = handle,
	    .size = size,
	    .window = AHEAD_MIN,
	    .next = UINT64_MAX};
	TAILQ_INIT(&o->pieces);
	TAILQ_INIT(&o->waiting);
	return o;
}

static uint64_t
end_of(const struct piece *p)
{
	return p->offset + p->n;
}

/* ---- pieces ---- */

static bool
is_awaited(const struct remote *o, const struct piece *p)
{
	const struct range *x;

	TAILQ_FOREACH (x, &o->waiting, link)
		if (p->offset < x->end && end_of(p) > x->offset)
			return true;
	return false;
}

static bool
is_stale(const struct piece *p)
{
	return p->came && (p->err.no || now_ns() - p->came > FRESH_MS * NS_PER_MS);
}

static void
drop_piece(struct remote *o, struct piece *p)
{
	TAILQ_REMOVE(&o->pieces, p, link);
	p->o = NULL;
	if (p->came)
		free(p); /* else its reply is still to come */
}

/* Drops pieces that no READ waits for and that are not next to be read. */
static void
tidy(struct remote *o)
{
	struct piece *p, *next;

	for (p = TAILQ_FIRST(&o->pieces); p; p = next) {
		bool follows = o->ahead && end_of(p) > o->next && p->offset < o->next + o->ahead;

		next = TAILQ_NEXT(p, link);
		if ((follows && !is_stale(p)) || is_awaited(o, p))
			continue;
		if (follows) { /* its reader is slower than the link */
			o->in_order = 0;
			o->window = AHEAD_MIN;
		}
		drop_piece(o, p);
	}
}

/* Adapts the window to the time that a reply took. It grows only if a READ waits for the piece. */
static void
adapt(struct remote *o, const struct piece *p)
{
	uint64_t took = p->came - p->asked;

	if (!o->least_ns || took < o->least_ns)
		o->least_ns = took;
	if (took <= 2 * o->least_ns + QUEUED_MS * NS_PER_MS)
		o->window = MIN(o->window + (is_awaited(o, p) ? p->n : 0), (size_t)AHEAD_MAX);
	else
		o->window = MAX(o->window - p->n, (size_t)AHEAD_MIN);
}

static void answer_ready(struct remote *o);

static void
on_piece(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct piece *p = arg;
	struct slice data = {0};

	if (!p->o) {
		free(p);
		return;
	}
	p->came = now_ns();
	if (!m)
		p->err = *e;
	else if (wire_unpack(m, Rread, &p->err, &data) == 0 && data.n != p->n)
		fail(&p->err, EBADMSG, "a rank gave %zu bytes in place of %zu", data.n, p->n);
	else if (!p->err.no)
		memcpy(p->bytes, data.p, data.n);
	if (!p->err.no)
		adapt(p->o, p);
	answer_ready(p->o);
}

/* Requests n bytes, as a piece before this one (NULL: after all others). */
static void
ask(struct remote *o, struct piece *before, uint64_t offset, size_t n)
{
	struct piece *p = xmalloc(sizeof(*p) + n);

	*p = (struct piece){.o = o, .offset = offset, .n = n, .asked = now_ns()};
	if (before)
		TAILQ_INSERT_BEFORE(before, p, link);
	else
		TAILQ_INSERT_TAIL(&o->pieces, p, link);
	agent_send(o->agent, Tread, 0, o->slot, agent_tag(o->agent, o->slot, Tread, on_piece, p),
	    -1, o->handle, offset, (uint32_t)n);
}

/* Requests what is missing of these bytes. */
static void
cover(struct remote *o, uint64_t from, uint64_t to)
{
	struct piece *p = TAILQ_FIRST(&o->pieces);

	while (from < to) {
		uint64_t gap_end;
		size_t n;

		while (p && end_of(p) <= from)
			p = TAILQ_NEXT(p, link);
		if (p && p->offset <= from) {
			from = end_of(p);
			continue;
		}
		gap_end = p ? MIN(to, p->offset) : to;
		n = (size_t)MIN(gap_end - from, (uint64_t)PIECE);
		ask(o, p, from, n);
		from += n;
	}
}

/* ---- ranges ---- */

static bool
is_ready(const struct remote *o, const struct range *x)
{
	const struct piece *p;

	TAILQ_FOREACH (p, &o->pieces, link)
		if (p->offset < x->end && end_of(p) > x->offset && !p->came)
			return false;
	return true;
}

static void
answer(const struct remote *o, struct range *x)
{
	const struct piece *p;

	TAILQ_FOREACH (p, &o->pieces, link) {
		uint64_t from = MAX(p->offset, x->offset), to = MIN(end_of(p), x->end);

		if (from >= to)
			continue;
		if (p->err.no)
			x->r->err = p->err;
		else
			memcpy(x->bytes + x->head_n + (from - x->offset),
			    p->bytes + (from - p->offset), (size_t)(to - from));
	}
	if (x->r->err.no)
		req_done(x->r, -x->r->err.no);
	else
		req_data(x->r, x->bytes, x->head_n + (size_t)(x->end - x->offset));
	free(x);
}

static void
answer_ready(struct remote *o)
{
	struct range *x = TAILQ_FIRST(&o->waiting);

	while (x) {
		struct range *next = TAILQ_NEXT(x, link);

		if (is_ready(o, x)) {
			TAILQ_REMOVE(&o->waiting, x, link);
			answer(o, x);
		}
		x = next;
	}
	tidy(o);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct remote *o = r->waits_for;
	struct range *x;

	TAILQ_FOREACH (x, &o->waiting, link)
		if (x->r == r)
			break;
	TAILQ_REMOVE(&o->waiting, x, link);
	free(x);
	tidy(o);
	req_done(r, -EINTR);
}

/* A READ that begins where the last one ended is sequential: twice as much as has been read in this
 * way may be requested ahead. Earlier requests stand, even if the window is smaller now. */
static void
look_ahead(struct remote *o, const struct range *x)
{
	bool in_order = x->offset == o->next;
	uint64_t end = in_order ? o->next + o->ahead : 0;

	o->in_order = in_order ? o->in_order + (x->end - x->offset) : 0;
	o->next = x->end;
	o->ahead = MIN(2 * o->in_order, (uint64_t)o->window);
	o->ahead = MAX(o->ahead, end > o->next ? end - o->next : 0);
	cover(o, o->next, MIN(o->next + o->ahead, o->size));
}

void
remote_read(struct remote *o, struct req *r, struct slice head, uint64_t offset, size_t n)
{
	size_t skip = (size_t)MIN(offset, head.n), head_n = MIN(head.n - skip, n);
	struct range *x = xmalloc(sizeof(*x) + n);

	offset = offset > head.n ? offset - head.n : 0;
	*x = (struct range){
	    .r = r, .offset = offset, .end = offset + (n - head_n), .head_n = head_n};
	if (head_n)
		memcpy(x->bytes, head.p + skip, head_n);
	r->waits_for = o;
	req_park(r, interrupted);
	tidy(o);
	if (!agent_slot_lives(o->agent, o->slot)) {
		fail(&r->err, EHOSTDOWN, "the rank is gone");
		req_done(r, -EHOSTDOWN);
		free(x);
		return;
	}
	TAILQ_INSERT_TAIL(&o->waiting, x, link);
	cover(o, x->offset, x->end);
	look_ahead(o, x);
	answer_ready(o);
}

void
remote_free(struct remote *o)
{
	struct range *x;

	if (!o)
		return;
	while ((x = TAILQ_FIRST(&o->waiting))) {
		TAILQ_REMOVE(&o->waiting, x, link);
		req_done(x->r, -ECANCELED);
		free(x);
	}
	while (!TAILQ_EMPTY(&o->pieces))
		drop_piece(o, TAILQ_FIRST(&o->pieces));
	free(o);
}
