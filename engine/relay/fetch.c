/* Turns objects in a rank's memory into bytes on a link. */
#include "relay/fetch.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

enum { FETCH_BYTES = 4 * LINK_PIECE }; /* per Tread */

struct fetch {
	TAILQ_ENTRY(fetch) link;
	unsigned slot;
	uint64_t tag; /* of the Tget, and of each Tread for it */
	uint32_t handle, id;
	uint64_t size, got;
	struct buf data; /* bytes received and still here */
	size_t sent;	 /* how many of those are sent */
	bool began;	 /* its Rget has arrived */
	bool asking;	 /* a Tread is pending */
	bool cancelled;	 /* no longer wanted: its Rget is awaited, to unpin the object */
};

struct fetches {
	struct conn *agent;
	struct link *link;
	struct outbox *out;
	TAILQ_HEAD(, fetch) list; /* the first is the next to send a piece */
};

struct fetches *
fetches_new(struct conn *agent, struct link *l, struct outbox *out)
{
	struct fetches *fs = xcalloc(1, sizeof(*fs));

	*fs = (struct fetches){.agent = agent, .link = l, .out = out};
	TAILQ_INIT(&fs->list);
	return fs;
}

static void
drop(struct fetches *fs, struct fetch *f)
{
	TAILQ_REMOVE(&fs->list, f, link);
	buf_free(&f->data);
	free(f);
}

void
fetch_asked(struct fetches *fs, const struct msg *m)
{
	struct slice op;
	struct fetch *f;

	if (wire_unpack(m, Tget, NULL, NULL, NULL, &op) < 0 || op.n == 0)
		return;
	f = xcalloc(1, sizeof(*f));
	*f = (struct fetch){.slot = m->slot, .tag = m->tag};
	TAILQ_INSERT_HEAD(&fs->list, f, link);
}

void
fetch_ended(struct fetches *fs, unsigned slot)
{
	struct fetch *f, *next;

	for (f = TAILQ_FIRST(&fs->list); f; f = next) {
		next = TAILQ_NEXT(f, link);
		if (f->slot != slot)
			continue;
		if (f->began)
			packet_send(fs->link, PACKET_FREE, false, f->id, (struct slice){0});
		drop(fs, f);
	}
}

static void
unpin(struct fetches *fs, const struct fetch *f, uint32_t handle)
{
	conn_send(fs->agent, Nfree, 0, f->slot, 0, -1, handle);
}

/* Abandons a fetch that has begun: the other side drops what waits for it, the rank unpins it. */
static void
stop(struct fetches *fs, struct fetch *f)
{
	packet_send(fs->link, PACKET_FREE, false, f->id, (struct slice){0});
	unpin(fs, f, f->handle);
}

/* The same, and answers its Tget with an error. */
static void
give_up(struct fetches *fs, struct fetch *f, const struct err *e)
{
	stop(fs, f);
	packet_send_error(fs->link, f->slot, f->tag, e);
	drop(fs, f);
}

static struct fetch *
find(const struct fetches *fs, unsigned slot, uint64_t tag)
{
	struct fetch *f;

	TAILQ_FOREACH (f, &fs->list, link)
		if (f->tag == tag && f->slot == slot)
			return f;
	return NULL;
}

void
fetch_cancel(struct fetches *fs, const struct msg *m)
{
	struct err e = {0};
	struct fetch *f;
	uint64_t tag;

	if (wire_unpack(m, Ncancel, NULL, &tag) < 0 || !(f = find(fs, m->slot, tag)))
		return;
	f->cancelled = true;
	packet_cancelled(&e);
	if (f->began)
		give_up(fs, f, &e);
}

/* Packs the Rget of an object in memory as one of this kind. */
static void
pack_get(struct buf *b, const struct msg *m, uint8_t kind)
{
	struct slice head;
	uint32_t handle;
	uint64_t size;

	wire_unpack(m, Rget, NULL, NULL, &handle, NULL, &size, &head);
	wire_pack(b, Rget, 0, m->slot, m->tag, (uint32_t)kind, handle, (uint64_t)0, size, head);
}

/* Begins a blob of what follows the head. */
static void
begin(struct fetches *fs, struct fetch *f, const struct msg *m)
{
	struct slice head = {0};
	struct buf b = {0}, size = {0};
	struct msg whole;

	wire_unpack(m, Rget, NULL, NULL, &f->handle, NULL, &f->size, &head);
	f->size -= MIN(f->size, head.n);
	f->began = true;
	f->id = outbox_id(fs->out);
	wire_put_number(&size, '8', f->size);
	packet_send(fs->link, PACKET_BLOB, false, f->id, (struct slice){size.p, size.n});
	pack_get(&b, m, GET_FD);
	wire_frame(b.p, b.n, &whole, NULL);
	packet_send_with(fs->link, f->id, &whole);
	buf_free(&b);
	buf_free(&size);
	link_more(fs->link);
}

static bool
answered_get(struct fetches *fs, struct fetch *f, const struct msg *m)
{
	struct buf b = {0};
	struct err e = {0};
	uint32_t handle;
	uint8_t kind;

	if (wire_unpack(m, Rget, NULL, &kind, &handle, NULL, NULL, NULL) < 0 || kind != GET_LIVE) {
		if (f)
			drop(fs, f);
		return false;
	}
	if (f && f->cancelled) {
		packet_cancelled(&e);
		unpin(fs, f, handle);
		packet_send_error(fs->link, f->slot, f->tag, &e);
		drop(fs, f);
		return true;
	}
	if (f) {
		begin(fs, f, m);
		return true;
	}
	pack_get(&b, m, GET_READ);
	link_send(fs->link, PACKET_FRAME, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
	return true;
}

/* All of it has been sent. */
static void
finish(struct fetches *fs, struct fetch *f)
{
	packet_send(fs->link, PACKET_FREE, false, f->id, (struct slice){0});
	drop(fs, f);
}

static void
answered_read(struct fetches *fs, struct fetch *f, const struct msg *m)
{
	struct slice data = {0};
	struct err e = {0};

	f->asking = false;
	if (wire_unpack(m, Rread, &e, &data) == 0 && data.n == 0 && f->got < f->size)
		fail(&e, EBADMSG, "a rank gave no bytes of its object");
	if (e.no) {
		give_up(fs, f, &e);
		return;
	}
	data.n = MIN(data.n, f->size - f->got);
	f->got += data.n;
	buf_drop(&f->data, f->sent);
	f->sent = 0;
	buf_add(&f->data, data.p, data.n);
	if (f->size == 0)
		finish(fs, f);
	else
		link_more(fs->link);
}

bool
fetch_answer(struct fetches *fs, const struct msg *m)
{
	struct fetch *f;

	if (m->type != Rget && m->type != Rread && m->type != Rerror)
		return false;
	f = find(fs, m->slot, m->tag);
	if (f && (f->began ? !f->asking || m->type == Rget : m->type == Rread))
		f = NULL; /* it was not asked for that */
	if (m->type == Rget)
		return answered_get(fs, f, m);
	if (!f)
		return false;
	if (m->type == Rread) {
		answered_read(fs, f, m);
		return true;
	}
	/* the object's memory is gone, or never existed: whoever waits for it gets the error */
	if (f->began)
		stop(fs, f);
	drop(fs, f);
	return false;
}

/* Requests more from the rank, so that there is always something to send. */
static void
ask(struct fetches *fs, struct fetch *f)
{
	uint64_t n = MIN(f->size - f->got, (uint64_t)FETCH_BYTES);

	if (!f->began || f->asking || f->data.n - f->sent >= FETCH_BYTES ||
	    (f->got == f->size && f->size))
		return;
	f->asking = true;
	conn_send(fs->agent, Tread, 0, f->slot, f->tag, -1, f->handle, f->got, (uint32_t)n);
}

static void
send_piece(struct fetches *fs, struct fetch *f)
{
	struct slice piece = {f->data.p + f->sent, MIN(f->data.n - f->sent, link_piece(fs->link))};

	f->sent += piece.n;
	packet_send(fs->link, PACKET_BYTES, true, f->id, piece);
	if (f->sent == f->data.n && f->got == f->size)
		finish(fs, f);
}

bool
fetches_more(struct fetches *fs)
{
	struct fetch *f;

	TAILQ_FOREACH (f, &fs->list, link)
		ask(fs, f);
	TAILQ_FOREACH (f, &fs->list, link)
		if (f->sent < f->data.n)
			break;
	if (!f)
		return false;
	TAILQ_REMOVE(&fs->list, f, link);
	TAILQ_INSERT_TAIL(&fs->list, f, link);
	send_piece(fs, f);
	return true;
}
