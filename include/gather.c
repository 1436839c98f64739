/* Groups of messages that differ only in their engine, tag and last bytes. */
#include "gather.h"
#include <stdlib.h>
#include <string.h>

enum {
	GROUPS = 8,	     /* open at the same time */
	BODY_MAX = 64 << 10, /* in bytes; longer bodies are not gathered */
	TAG = sizeof(uint64_t),
	ROOM_KEPT = 4 << 10 /* a larger body buffer is not kept for reuse */
};

struct group {
	struct msg first;
	struct buf body; /* of the first message; first.body points into it */
	struct buf who;	 /* all engines, as in Nmany */
	size_t tail;
	unsigned n;
};

struct gather {
	struct loop *loop;
	gather_fn *send;
	void *arg;
	struct timer *round_end; /* NULL: no message was taken */
	struct group groups[GROUPS];
	unsigned n;	/* open groups */
	unsigned *last; /* by place: 1 + the group of its last message; 0: none */
	size_t places;
};

struct gather *
gather_new(struct loop *l, gather_fn *send, void *arg)
{
	struct gather *g = xcalloc(1, sizeof(*g));

	*g = (struct gather){.loop = l, .send = send, .arg = arg};
	return g;
}

void
gather_free(struct gather *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < GROUPS; i++) {
		buf_free(&g->groups[i].body);
		buf_free(&g->groups[i].who);
	}
	loop_timer_del(g->round_end);
	free(g->last);
	free(g);
}

/* The number of bytes at the end that differ per engine: the position in its output, and in an
 * Nmark also the tag. */
static size_t
tail_of(const struct msg *m)
{
	size_t tail = m->type == Nmark					  ? TAG + WIRE_MARK
		      : m->flags & FLAG_MARK && wire_kind(m->type) == 'R' ? WIRE_MARK
									  : 0;

	return MIN(tail, m->len);
}

/* The engine's entry in last, which grows if necessary. */
static unsigned *
last_of(struct gather *g, unsigned place)
{
	if (place >= g->places) {
		size_t places = MAX((size_t)place + 1, g->places * 2);

		g->last = xrealloc(g->last, places * sizeof(*g->last));
		memset(g->last + g->places, 0, (places - g->places) * sizeof(*g->last));
		g->places = places;
	}
	return &g->last[place];
}

static bool
is_equal(const struct group *x, const struct msg *m)
{
	return x->first.type == m->type && x->first.flags == m->flags && x->first.len == m->len &&
	       (m->len == x->tail || memcmp(x->body.p, m->body, m->len - x->tail) == 0);
}

static struct group *
open_group(struct gather *g, const struct msg *m)
{
	struct group *x = &g->groups[g->n++];

	buf_clear(&x->body);
	buf_clear(&x->who);
	buf_add(&x->body, m->body, m->len);
	x->first = *m;
	x->first.body = x->body.p;
	x->tail = tail_of(m);
	x->n = 0;
	return x;
}

/* Returns false if there is no room for it. */
static bool
add(struct gather *g, const struct msg *m)
{
	unsigned *last = last_of(g, slot_place(m->slot));
	unsigned i = *last ? *last - 1 : 0; /* not before the group of its engine's last message */
	struct group *x;

	while (i < g->n && !is_equal(&g->groups[i], m))
		i++;
	if (i == GROUPS)
		return false;
	x = i < g->n ? &g->groups[i] : open_group(g, m);
	wire_many_add(
	    &x->who, m->slot, m->tag, (struct slice){m->body + m->len - x->tail, x->tail});
	x->n++;
	*last = i + 1;
	return true;
}

static void
pack(const struct group *x, struct buf *out)
{
	struct buf one = {0};

	if (x->n == 1) {
		wire_pack_raw(out, &x->first);
		return;
	}
	wire_pack_raw(&one, &x->first);
	wire_pack(out, Nmany, 0, SLOT_AGENT, 0, (uint32_t)x->tail,
	    ((struct slice){x->who.p, x->who.n}), ((struct slice){one.p, one.n}));
	buf_free(&one);
}

void
gather_flush(struct gather *g)
{
	struct buf frames = {0};

	if (!g || !g->n)
		return;
	loop_timer_del(g->round_end);
	g->round_end = NULL;
	for (unsigned i = 0; i < g->n; i++) {
		pack(&g->groups[i], &frames);
		if (g->groups[i].body.cap > ROOM_KEPT)
			buf_free(&g->groups[i].body);
	}
	memset(g->last, 0, g->places * sizeof(*g->last));
	g->n = 0;
	g->send(g->arg, (struct slice){frames.p, frames.n});
	buf_free(&frames);
}

static void
on_round_end(void *arg)
{
	struct gather *g = arg;

	g->round_end = NULL;
	gather_flush(g);
}

bool
gather_take(struct gather *g, const struct msg *m)
{
	bool taken = m->len <= BODY_MAX && m->fd < 0 && wire_is_many(m->type);

	if (!taken || !add(g, m)) {
		gather_flush(g);
		taken = taken && add(g, m);
	}
	if (taken && !g->round_end)
		g->round_end = loop_round_end(g->loop, on_round_end, g);
	return taken;
}
