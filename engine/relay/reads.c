/* Holds Treads and the replies to them until there is room for each. */
#include "relay/reads.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

enum {
	AHEAD = 1 << 20,  /* bytes of an object requested from the rank and not yet sent on */
	AT_ONCE = 4 << 10 /* a reply up to this length is not bulk */
};

struct range { /* requested by a Tread */
	TAILQ_ENTRY(range) link;
	uint64_t tag;
	uint32_t count;
	uint64_t offset;
	bool asked;	  /* requested from the rank */
	struct buf frame; /* the reply; empty: not here yet */
	size_t sent;	  /* how many of its bytes are sent */
	uint32_t id;	  /* of its packets */
};

struct object {
	TAILQ_ENTRY(object) link;
	unsigned slot;
	uint32_t handle;
	size_t under_way; /* bytes of the ranges requested from the rank */
	TAILQ_HEAD(, range) ranges;
};

struct reads {
	struct conn *agent;
	struct link *link;
	struct windows *windows;
	uint32_t last_id;
	TAILQ_HEAD(, object) objects; /* the first is the next to send a piece */
};

struct reads *
reads_new(struct conn *agent, struct link *l, struct windows *ws)
{
	struct reads *rs = xcalloc(1, sizeof(*rs));

	*rs = (struct reads){.agent = agent, .link = l, .windows = ws};
	TAILQ_INIT(&rs->objects);
	return rs;
}

static void
drop_range(struct object *o, struct range *x)
{
	if (x->asked)
		o->under_way -= x->count;
	TAILQ_REMOVE(&o->ranges, x, link);
	buf_free(&x->frame);
	free(x);
}

/* An object exists while something is requested of it. */
static void
drop_if_empty(struct reads *rs, struct object *o)
{
	if (!TAILQ_EMPTY(&o->ranges))
		return;
	TAILQ_REMOVE(&rs->objects, o, link);
	free(o);
}

static struct object *
find_object(const struct reads *rs, unsigned slot, uint32_t handle)
{
	struct object *o;

	TAILQ_FOREACH (o, &rs->objects, link)
		if (o->slot == slot && o->handle == handle)
			break;
	return o;
}

/* The range, of *o, that waits for this reply; NULL: none. */
static struct range *
find_asked(const struct reads *rs, const struct msg *m, struct object **o)
{
	struct range *x;

	TAILQ_FOREACH (*o, &rs->objects, link)
		TAILQ_FOREACH (x, &(*o)->ranges, link)
			if (x->tag == m->tag && (*o)->slot == m->slot && x->asked && !x->frame.n)
				return x;
	return NULL;
}

static void
refuse(struct reads *rs, const struct object *o, const struct range *x, const struct err *e)
{
	if (x->sent)
		packet_send(rs->link, PACKET_CUT, false, x->id, (struct slice){0});
	packet_send_error(rs->link, o->slot, x->tag, e);
}

/* Requests as much from the rank as may be held here. */
static void
ask(struct reads *rs, struct object *o)
{
	struct range *x, *next;

	for (x = TAILQ_FIRST(&o->ranges); x && o->under_way < AHEAD; x = next) {
		struct buf b = {0};
		struct msg m;

		next = TAILQ_NEXT(x, link);
		if (x->asked)
			continue;
		x->asked = true;
		o->under_way += x->count;
		wire_pack(&b, Tread, 0, o->slot, x->tag, o->handle, x->offset, x->count);
		wire_frame(b.p, b.n, &m, NULL);
		if (!window_asked(rs->windows, &m))
			conn_forward(rs->agent, &m);
		buf_free(&b);
	}
}

void
reads_asked(struct reads *rs, const struct msg *m)
{
	struct object *o;
	struct range *x;
	uint32_t handle, count;
	uint64_t offset;

	if (wire_unpack(m, Tread, NULL, &handle, &offset, &count) < 0)
		return;
	o = find_object(rs, m->slot, handle);
	if (!o) {
		o = xcalloc(1, sizeof(*o));
		*o = (struct object){.slot = m->slot, .handle = handle};
		TAILQ_INIT(&o->ranges);
		TAILQ_INSERT_HEAD(&rs->objects, o, link);
	}
	x = xcalloc(1, sizeof(*x));
	*x = (struct range){.tag = m->tag, .count = count, .offset = offset};
	TAILQ_INSERT_TAIL(&o->ranges, x, link);
	ask(rs, o);
}

/* Refuses all requests. What the rank still answers is dropped. */
static void
refuse_all(struct reads *rs, struct object *o, const struct err *e)
{
	struct range *x;

	while ((x = TAILQ_FIRST(&o->ranges))) {
		refuse(rs, o, x, e);
		drop_range(o, x);
	}
	drop_if_empty(rs, o);
}

void
reads_unpinned(struct reads *rs, const struct msg *m)
{
	struct object *o;
	struct err e;
	uint32_t handle;

	if (wire_unpack(m, Nfree, NULL, &handle) < 0 || !(o = find_object(rs, m->slot, handle)))
		return;
	packet_cancelled(&e);
	refuse_all(rs, o, &e);
}

void
reads_ended(struct reads *rs, unsigned slot)
{
	struct object *o, *next;
	struct err e;

	fail(&e, EHOSTDOWN, "the rank is gone");
	for (o = TAILQ_FIRST(&rs->objects); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->slot == slot)
			refuse_all(rs, o, &e);
	}
}

bool
reads_answered(struct reads *rs, const struct msg *m)
{
	struct object *o;
	struct range *x;

	if (m->type != Rread && m->type != Rerror)
		return false;
	x = find_asked(rs, m, &o);
	if (!x)
		return m->type == Rread; /* it was refused: nobody waits for the bytes */
	if (m->type == Rerror || m->len <= AT_ONCE) {
		drop_range(o, x);
		ask(rs, o);
		drop_if_empty(rs, o);
		return false;
	}
	wire_pack_raw(&x->frame, m);
	x->id = ++rs->last_id;
	link_more(rs->link);
	return true;
}

static void
send_piece(struct reads *rs, struct object *o, struct range *x)
{
	size_t n = MIN(x->frame.n - x->sent, link_piece(rs->link));
	struct slice piece = {x->frame.p + x->sent, n};
	struct buf head = {0};

	x->sent += n;
	wire_put_number(&head, '4', x->id);
	wire_put_number(&head, '4', x->frame.n - x->sent);
	link_send(rs->link, PACKET_PART, true, (struct slice){head.p, head.n}, piece);
	buf_free(&head);
	if (x->sent < x->frame.n)
		return;
	drop_range(o, x);
	ask(rs, o);
	drop_if_empty(rs, o);
}

bool
reads_more(struct reads *rs)
{
	struct object *o;
	struct range *x;

	TAILQ_FOREACH (o, &rs->objects, link) {
		TAILQ_FOREACH (x, &o->ranges, link)
			if (x->frame.n)
				break;
		if (!x)
			continue;
		TAILQ_REMOVE(&rs->objects, o, link);
		TAILQ_INSERT_TAIL(&rs->objects, o, link);
		send_piece(rs, o, x);
		return true;
	}
	return false;
}
