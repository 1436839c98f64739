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

struct remote {
	struct provider provider; /* first */
	struct agent *agent;
	int slot;
	uint32_t handle;
	uint64_t size;
	TAILQ_HEAD(pieces, piece) pieces; /* by offset; they do not overlap */
	uint64_t next;			  /* where a sequential read would continue */
	uint64_t in_order;		  /* bytes read sequentially after the first READ */
	uint64_t ahead;			  /* bytes requested from `next` on */
	size_t window;			  /* the limit for `ahead` */
	uint64_t least_ns;		  /* the fastest reply; 0: none yet */
};

static uint64_t
end_of(const struct piece *p)
{
	return p->offset + p->n;
}

static bool
overlap(const struct piece *p, const struct range *x)
{
	return p->offset < x->offset + x->n && end_of(p) > x->offset;
}

/* ---- pieces ---- */

static bool
is_awaited(const struct remote *o, const struct piece *p)
{
	const struct range *x;

	TAILQ_FOREACH (x, &o->provider.ranges, link)
		if (overlap(p, x))
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

/* Brings together what a range consists of. */
static void
answer(const struct remote *o, struct range *x)
{
	char *to = xmalloc(x->head.n + x->n);
	struct source bytes = {.kind = SOURCE_MEMORY,
	    .fd = -1,
	    .head = to,
	    .head_n = x->head.n + x->n,
	    .sent = free,
	    .sent_arg = to};
	const struct err *failed = NULL;
	const struct piece *p;

	memcpy(to, x->head.p, x->head.n);
	TAILQ_FOREACH (p, &o->pieces, link) {
		uint64_t from = MAX(p->offset, x->offset), end = MIN(end_of(p), x->offset + x->n);

		if (!overlap(p, x))
			continue;
		if (p->err.no)
			failed = &p->err;
		else
			memcpy(to + x->head.n + (from - x->offset), p->bytes + (from - p->offset),
			    (size_t)(end - from));
	}
	if (failed)
		free(to);
	range_answer(x, failed ? NULL : &bytes, failed);
}

/* The first range whose pieces have all come. From the first on each time: what an answer leads to
 * may cancel others. */
static struct range *
next_ready(const struct remote *o)
{
	struct range *x;
	const struct piece *p;

	TAILQ_FOREACH (x, &o->provider.ranges, link) {
		TAILQ_FOREACH (p, &o->pieces, link)
			if (overlap(p, x) && !p->came)
				break;
		if (!p)
			break;
	}
	return x;
}

static void
answer_ready(struct remote *o)
{
	struct range *x;

	while ((x = next_ready(o)))
		answer(o, x);
	tidy(o);
}

/* A READ that begins where the last one ended is sequential: twice as much as has been read in this
 * way may be requested ahead. Earlier requests stand, even if the window is smaller now. */
static void
look_ahead(struct remote *o, const struct range *x)
{
	bool in_order = x->offset == o->next;
	uint64_t end = in_order ? o->next + o->ahead : 0;

	o->in_order = in_order ? o->in_order + x->n : 0;
	o->next = x->offset + x->n;
	o->ahead = MIN(2 * o->in_order, (uint64_t)o->window);
	o->ahead = MAX(o->ahead, end > o->next ? end - o->next : 0);
	cover(o, o->next, MIN(o->next + o->ahead, o->size));
}

static void
read_object(struct range *x)
{
	struct remote *o = (struct remote *)x->of;
	struct err e;

	tidy(o);
	TAILQ_INSERT_TAIL(&o->provider.ranges, x, link);
	if (!agent_slot_lives(o->agent, o->slot)) {
		fail(&e, EHOSTDOWN, "the rank is gone");
		range_answer(x, NULL, &e);
		return;
	}
	cover(o, x->offset, x->offset + x->n);
	look_ahead(o, x);
	answer_ready(o);
}

static void
cancel(struct range *x)
{
	tidy((struct remote *)x->of);
}

static void
free_object(struct provider *provider)
{
	struct remote *o = (struct remote *)provider;

	while (!TAILQ_EMPTY(&o->pieces))
		drop_piece(o, TAILQ_FIRST(&o->pieces));
	free(o);
}

struct provider *
remote_provider(struct agent *a, int slot, uint32_t handle, uint64_t size)
{
	static const struct provider_ops ops = {read_object, cancel, free_object};
	struct remote *o = xcalloc(1, sizeof(*o));

	*o = (struct remote){.provider.ops = &ops,
	    .agent = a,
	    .slot = slot,
	    .handle = handle,
	    .size = size,
	    .window = AHEAD_MIN,
	    .next = UINT64_MAX};
	TAILQ_INIT(&o->provider.ranges);
	TAILQ_INIT(&o->pieces);
	return &o->provider;
}
