/* Turns objects in a rank's memory into bytes on a link. */
#include "relay/fetch.h"
#include <stdlib.h>
#include <sys/queue.h>

enum { FETCH_BYTES = 4 * LINK_PIECE }; /* by one Tread */

struct fetch {
	LIST_ENTRY(fetch) link;
	unsigned slot;
	uint32_t tag; /* of the Tget, and of each Tread for it: it is open until all is there */
	uint32_t handle, id;
	uint64_t size, got;
	bool began;  /* the object is there; else its Rget is awaited */
	bool asking; /* a Tread is under way */
};

struct fetches {
	struct conn *agent;
	struct link *link;
	struct outbox *out;
	LIST_HEAD(, fetch) list;
};

struct fetches *
fetches_new(struct conn *agent, struct link *l, struct outbox *out)
{
	struct fetches *fs = xcalloc(1, sizeof(*fs));

	*fs = (struct fetches){.agent = agent, .link = l, .out = out};
	LIST_INIT(&fs->list);
	return fs;
}

static void
drop(struct fetch *f)
{
	LIST_REMOVE(f, link);
	free(f);
}

void
fetches_free(struct fetches *fs)
{
	while (fs && !LIST_EMPTY(&fs->list))
		drop(LIST_FIRST(&fs->list));
	free(fs);
}

void
fetch_asked(struct fetches *fs, const struct msg *m)
{
	struct slice op;
	struct fetch *f;

	if (wire_unpack(m, NULL, NULL, NULL, &op) < 0 || op.n == 0)
		return;
	f = xcalloc(1, sizeof(*f));
	*f = (struct fetch){.slot = m->slot, .tag = m->tag};
	LIST_INSERT_HEAD(&fs->list, f, link);
}

void
fetch_ended(struct fetches *fs, unsigned slot)
{
	struct fetch *f, *next;

	for (f = LIST_FIRST(&fs->list); f; f = next) {
		next = LIST_NEXT(f, link);
		if (f->slot != slot)
			continue;
		if (f->began)
			packet_send(fs->link, PACKET_FREE, false, f->id, (struct slice){0});
		drop(f);
	}
}

/* The Rget of an object in memory, as one of this kind. */
static void
pack_get(struct buf *b, const struct msg *m, uint8_t kind)
{
	struct slice head;
	uint32_t handle;
	uint64_t size;

	wire_unpack(m, NULL, NULL, &handle, NULL, &size, &head);
	wire_pack(b, Rget, 0, m->slot, m->tag, (uint32_t)kind, handle, (uint64_t)0, size, head);
}

/* Begins a blob of what is behind the head. */
static void
begin(struct fetches *fs, struct fetch *f, const struct msg *m)
{
	struct slice head = {0};
	struct buf b = {0}, size = {0};
	struct msg whole;

	wire_unpack(m, NULL, NULL, &f->handle, NULL, &f->size, &head);
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
	uint8_t kind;

	if (wire_unpack(m, NULL, &kind, NULL, NULL, NULL, NULL) < 0 || kind != GET_LIVE) {
		if (f)
			drop(f);
		return false;
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

static void
answered_read(struct fetches *fs, struct fetch *f, const struct msg *m)
{
	struct slice data = {0};

	f->asking = false;
	if (wire_unpack(m, NULL, &data) < 0)
		return;
	data.n = MIN(data.n, f->size - f->got);
	f->got += data.n;
	while (data.n) {
		struct slice piece = {data.p, MIN(data.n, (size_t)LINK_PIECE)};

		packet_send(fs->link, PACKET_BYTES, true, f->id, piece);
		data.p += piece.n;
		data.n -= piece.n;
	}
	if (f->got < f->size) {
		link_more(fs->link);
		return;
	}
	packet_send(fs->link, PACKET_FREE, false, f->id, (struct slice){0});
	drop(f);
}

bool
fetch_answer(struct fetches *fs, const struct msg *m)
{
	struct fetch *f;

	if (m->type != Rget && m->type != Rread && m->type != Rerror)
		return false;
	LIST_FOREACH (f, &fs->list, link)
		if (f->tag == m->tag && f->slot == m->slot)
			break;
	if (m->type == Rget)
		return answered_get(fs, f, m);
	if (!f)
		return false;
	if (m->type == Rread) {
		answered_read(fs, f, m);
		return true;
	}
	/* the object's memory has gone, or there was none: what waits for it hears of that */
	if (f->began)
		packet_send(fs->link, PACKET_FREE, false, f->id, (struct slice){0});
	drop(f);
	return false;
}

void
fetches_more(struct fetches *fs)
{
	struct fetch *f;

	LIST_FOREACH (f, &fs->list, link) {
		uint64_t n = MIN(f->size - f->got, (uint64_t)FETCH_BYTES);

		if (!f->began || f->asking)
			continue;
		f->asking = true;
		conn_send(fs->agent, Tread, 0, f->slot, f->tag, -1, f->handle, f->got, (uint32_t)n);
	}
}
