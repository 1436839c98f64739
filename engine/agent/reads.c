/*
 * Answers Treads. The daemon reads far ahead: what is not read yet waits here, and little of each
 * object is read before the relay takes it.
 */
#include "agent/objects.h"
#include <errno.h>
#include <stdlib.h>

enum {
	AHEAD = 1 << 20, /* bytes of an object that are being read, or have been and are not sent */
	AT_ONCE = 4 << 10 /* a reply up to this length is not bulk */
};

struct read { /* a Tread */
	TAILQ_ENTRY(read) link;
	struct queue *of;
	uint64_t tag, offset;
	uint32_t count;
	bool begun;
	struct buf frame; /* the reply; empty: not here yet */
};

struct queue { /* of an object, while something is requested of it */
	TAILQ_ENTRY(queue) link;
	struct object *object;
	size_t under_way; /* bytes of the reads that have begun */
	bool beginning;
	TAILQ_HEAD(, read) reads;
};

/* The first is the next to send a frame. */
static TAILQ_HEAD(queues, queue) queues = TAILQ_HEAD_INITIALIZER(queues);

static struct queue *
find(const struct object *o)
{
	struct queue *q;

	TAILQ_FOREACH (q, &queues, link)
		if (q->object == o)
			break;
	return q;
}

static void
drop(struct read *x)
{
	if (x->begun)
		x->of->under_way -= x->count;
	TAILQ_REMOVE(&x->of->reads, x, link);
	buf_free(&x->frame);
	free(x);
}

static void
drop_if_empty(struct queue *q)
{
	if (q->beginning || !TAILQ_EMPTY(&q->reads))
		return;
	TAILQ_REMOVE(&queues, q, link);
	free(q);
}

static void begin(struct queue *q);

static void
on_read(void *arg, struct buf *frame, const struct err *e)
{
	struct read *x = arg;
	struct queue *q = x->of;
	struct msg m;

	if (frame && frame->n > AT_ONCE) {
		x->frame = *frame;
		*frame = (struct buf){0};
		bulk_ready(BULK_OBJECTS);
		return;
	}
	if (e)
		agent_refuse(object_engine(q->object)->slot, x->tag, e);
	else if (wire_frame(frame->p, frame->n, &m, NULL) > 0)
		conn_forward(agent.up, &m);
	drop(x);
	begin(q);
}

/* Reads as much as may be held here. A read that is answered at once comes back to this loop. */
static void
begin(struct queue *q)
{
	struct read *x;

	if (q->beginning)
		return;
	q->beginning = true;
	for (;;) {
		TAILQ_FOREACH (x, &q->reads, link)
			if (!x->begun)
				break;
		if (!x || q->under_way >= AHEAD)
			break;
		x->begun = true;
		q->under_way += x->count;
		object_read(q->object, x->tag, x->offset, x->count, on_read, x);
	}
	q->beginning = false;
	drop_if_empty(q);
}

void
reads_ask(struct object *o, const struct msg *m)
{
	struct queue *q = find(o);
	struct read *x = xcalloc(1, sizeof(*x));

	if (!q) {
		q = xcalloc(1, sizeof(*q));
		q->object = o;
		TAILQ_INIT(&q->reads);
		TAILQ_INSERT_HEAD(&queues, q, link);
	}
	*x = (struct read){.of = q, .tag = m->tag};
	wire_unpack(m, Tread, NULL, NULL, &x->offset, &x->count);
	TAILQ_INSERT_TAIL(&q->reads, x, link);
	begin(q);
}

void
reads_drop(struct object *o, const struct err *e)
{
	struct queue *q = find(o);
	struct read *x;

	while (q && (x = TAILQ_FIRST(&q->reads))) {
		agent_refuse(object_engine(o)->slot, x->tag, e);
		drop(x);
	}
	if (q)
		drop_if_empty(q);
}

bool
reads_next(struct buf *frame)
{
	struct queue *q;
	struct read *x = NULL;

	TAILQ_FOREACH (q, &queues, link) {
		TAILQ_FOREACH (x, &q->reads, link)
			if (x->frame.n)
				break;
		if (x)
			break;
	}
	if (!q)
		return false;
	TAILQ_REMOVE(&queues, q, link);
	TAILQ_INSERT_TAIL(&queues, q, link);
	buf_free(frame);
	*frame = x->frame;
	x->frame = (struct buf){0};
	drop(x);
	begin(q);
	return true;
}
