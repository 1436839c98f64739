/*
 * Answers Treads, and sends whole objects, for OPs. The daemon reads far ahead: what is not read
 * yet waits here, and little of each object is read before there is room for it.
 */
#include "agent/objects.h"
#include <errno.h>
#include <stdlib.h>

enum {
	AHEAD = 1 << 20, /* bytes of an object that are being read, or have been and are not sent */
	AT_ONCE = 4 << 10, /* a reply up to this length is not bulk */
	PIECE = 256 << 10, /* of an object that is sent whole */
	WITH_MAX = 64	   /* that an Nwith adds to what it carries, at most */
};

struct read { /* a Tread, or a piece */
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
	/* of one that is sent whole, and then owned: */
	uint32_t blob;	   /* 0: it is none */
	uint64_t tag;	   /* of the Tget */
	uint64_t asked;	   /* bytes for which there were reads */
	bool sent;	   /* some of them are sent */
	struct buf answer; /* the Rget, a frame that follows them */
	struct err failed;
};

/* The first is the next to send a frame. */
static TAILQ_HEAD(queues, queue) queues = TAILQ_HEAD_INITIALIZER(queues);

static struct buf ready; /* small frames that go behind the last one */
static uint32_t last_blob;

static struct queue *
find(const struct object *o)
{
	struct queue *q;

	TAILQ_FOREACH (q, &queues, link)
		if (q->object == o)
			break;
	return q;
}

static struct queue *
new_queue(struct object *o)
{
	struct queue *q = xcalloc(1, sizeof(*q));

	q->object = o;
	TAILQ_INIT(&q->reads);
	TAILQ_INSERT_HEAD(&queues, q, link);
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
free_queue(struct queue *q)
{
	while (!TAILQ_EMPTY(&q->reads))
		drop(TAILQ_FIRST(&q->reads));
	TAILQ_REMOVE(&queues, q, link);
	if (q->blob)
		object_free(q->object);
	buf_free(&q->answer);
	free(q);
}

/* ---- whole objects ---- */

/* The rank need not keep the object: its bytes are no longer wanted, or cannot be read. e: the
 * answer; NULL: somebody else answers. */
static void
give_up(struct queue *q, const struct err *e)
{
	const struct engine *from = object_engine(q->object);

	object_unpin(from, object_handle(q->object));
	if (e)
		agent_refuse(from->slot, q->tag, e);
	if (q->sent)
		wire_pack(&ready, Nforget, 0, SLOT_AGENT, 0, q->blob);
	free_queue(q);
	bulk_ready(agent.bulk[LANE_OBJECTS]);
}

/* All its bytes are sent. */
static void
finish(struct queue *q)
{
	wire_pack(
	    &ready, Nwith, 0, SLOT_AGENT, 0, q->blob, ((struct slice){q->answer.p, q->answer.n}));
	wire_pack(&ready, Nforget, 0, SLOT_AGENT, 0, q->blob);
	free_queue(q);
}

static struct read *
add(struct queue *q, uint64_t tag, uint64_t offset, uint32_t count)
{
	struct read *x = xcalloc(1, sizeof(*x));

	*x = (struct read){.of = q, .tag = tag, .offset = offset, .count = count};
	TAILQ_INSERT_TAIL(&q->reads, x, link);
	return x;
}

static struct read *
next_piece(struct queue *q)
{
	uint64_t n = MIN(object_size(q->object) - q->asked, (uint64_t)PIECE);

	if (!n)
		return NULL;
	q->asked += n;
	return add(q, q->tag, q->asked - n, (uint32_t)n);
}

/* ---- reads ---- */

/* Frees q if nothing is left to do. */
static void
settle(struct queue *q)
{
	if (q->beginning)
		return;
	if (q->failed.no)
		give_up(q, &q->failed);
	else if (TAILQ_EMPTY(&q->reads) && q->blob)
		finish(q);
	else if (TAILQ_EMPTY(&q->reads))
		free_queue(q);
}

static void begin(struct queue *q);

static void
on_piece(struct read *x, struct buf *frame, const struct err *e)
{
	struct queue *q = x->of;
	struct slice data = {0};
	struct msg m;

	if (e) {
		q->failed = *e;
	} else if (wire_frame(frame->p, frame->n, &m, NULL) <= 0 ||
		   wire_unpack(&m, Nblob, NULL, NULL, NULL, NULL, &data) < 0 ||
		   data.n != x->count) {
		fail(&q->failed, EBADMSG, "a rank gave other bytes than its object has");
	} else {
		x->frame = *frame;
		*frame = (struct buf){0};
		bulk_ready(agent.bulk[LANE_OBJECTS]);
		return;
	}
	settle(q);
}

static void
on_read(void *arg, struct buf *frame, const struct err *e)
{
	struct read *x = arg;
	struct queue *q = x->of;
	struct msg m;

	if (q->blob) {
		on_piece(x, frame, e);
		return;
	}
	if (frame && frame->n > AT_ONCE) {
		x->frame = *frame;
		*frame = (struct buf){0};
		bulk_ready(agent.bulk[LANE_OBJECTS]);
		return;
	}
	if (e)
		agent_refuse(object_engine(q->object)->slot, x->tag, e);
	else if (wire_frame(frame->p, frame->n, &m, NULL) > 0)
		conn_forward(agent.up, &m);
	drop(x);
	begin(q);
}

/* Reads as much as may be held here. A read that is answered at once comes back to this loop. May
 * free q. */
static void
begin(struct queue *q)
{
	struct read *x;

	if (q->beginning)
		return;
	q->beginning = true;
	while (!q->failed.no && q->under_way < AHEAD) {
		TAILQ_FOREACH (x, &q->reads, link)
			if (!x->begun)
				break;
		if (!x && q->blob)
			x = next_piece(q);
		if (!x)
			break;
		x->begun = true;
		q->under_way += x->count;
		object_read(q->object, x->tag, q->blob, x->offset, x->count, on_read, x);
	}
	q->beginning = false;
	settle(q);
}

void
reads_ask(struct object *o, const struct msg *m)
{
	struct queue *q = find(o);
	uint64_t offset;
	uint32_t count;

	if (!q)
		q = new_queue(o);
	wire_unpack(m, Tread, NULL, NULL, &offset, &count);
	add(q, m->tag, offset, count);
	begin(q);
}

void
reads_drop(struct object *o, const struct err *e)
{
	struct queue *q = find(o);
	struct read *x;

	if (!q)
		return;
	TAILQ_FOREACH (x, &q->reads, link)
		agent_refuse(object_engine(o)->slot, x->tag, e);
	free_queue(q);
}

void
reads_whole(struct object *o, uint64_t tag, uint64_t size, struct slice head)
{
	struct queue *q = new_queue(o);

	q->blob = ++last_blob;
	q->tag = tag;
	wire_pack(&q->answer, Rget, 0, object_engine(o)->slot, tag, (uint32_t)GET_FD,
	    object_handle(o), (uint64_t)0, size, head);
	if (q->answer.n + WITH_MAX > WIRE_MAX) {
		fail(&q->failed, EFBIG, "an object's head has %zu bytes", head.n);
		give_up(q, &q->failed);
		return;
	}
	if (!object_size(o))
		wire_pack(&ready, Nblob, 0, SLOT_AGENT, 0, q->blob, (uint64_t)0, (uint64_t)0,
		    (struct slice){0});
	begin(q);
	bulk_ready(agent.bulk[LANE_OBJECTS]);
}

bool
reads_cancel(const struct engine *e, uint64_t tag)
{
	struct queue *q;
	struct err err;

	TAILQ_FOREACH (q, &queues, link)
		if (q->blob && object_engine(q->object) == e && q->tag == tag)
			break;
	if (!q)
		return false;
	wire_cancelled(&err);
	give_up(q, &err);
	return true;
}

void
reads_ended(const struct engine *e)
{
	struct queue *q, *next;

	for (q = TAILQ_FIRST(&queues); q; q = next) {
		next = TAILQ_NEXT(q, link);
		if (q->blob && object_engine(q->object) == e)
			give_up(q, NULL);
	}
}

/* The next one whose frame is there, in the order of each object's reads; NULL: none. */
static struct read *
first_read(void)
{
	const struct queue *q;

	TAILQ_FOREACH (q, &queues, link)
		if (!TAILQ_EMPTY(&q->reads) && TAILQ_FIRST(&q->reads)->frame.n)
			return TAILQ_FIRST(&q->reads);
	return NULL;
}

bool
reads_next(void *arg, struct buf *frame)
{
	struct read *x = first_read();
	struct queue *q = x ? x->of : NULL;

	if (x) {
		TAILQ_REMOVE(&queues, q, link);
		TAILQ_INSERT_TAIL(&queues, q, link);
		q->sent = true;
		buf_free(frame);
		*frame = x->frame;
		x->frame = (struct buf){0};
		drop(x);
		begin(q);
	}
	buf_add(frame, ready.p, ready.n);
	buf_clear(&ready);
	return frame->n > 0;
}
