/* Collects pieces in memfds, and delivers frames once theirs is complete. */
#include "relay/inbox.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

struct waiting {
	STAILQ_ENTRY(waiting) link;
	struct buf frame;
};

struct blob {
	LIST_ENTRY(blob) link;
	uint32_t id;
	int fd;
	uint64_t size, got;
	struct err err; /* set if there is no room for it */
	STAILQ_HEAD(, waiting) waiting;
};

struct inbox {
	inbox_fn *deliver;
	void *arg;
	LIST_HEAD(, blob) blobs;
};

struct inbox *
inbox_new(inbox_fn *deliver, void *arg)
{
	struct inbox *in = xcalloc(1, sizeof(*in));

	*in = (struct inbox){.deliver = deliver, .arg = arg};
	LIST_INIT(&in->blobs);
	return in;
}

static void
drop_waiting(struct blob *b, struct waiting *w)
{
	STAILQ_REMOVE(&b->waiting, w, waiting, link);
	buf_free(&w->frame);
	free(w);
}

static void
drop(struct blob *b)
{
	struct waiting *w;

	while ((w = STAILQ_FIRST(&b->waiting)))
		drop_waiting(b, w);
	LIST_REMOVE(b, link);
	if (b->fd >= 0)
		close(b->fd);
	free(b);
}

void
inbox_free(struct inbox *in)
{
	while (in && !LIST_EMPTY(&in->blobs))
		drop(LIST_FIRST(&in->blobs));
	free(in);
}

static struct blob *
find(const struct inbox *in, uint32_t id)
{
	struct blob *b;

	LIST_FOREACH (b, &in->blobs, link)
		if (b->id == id)
			return b;
	return NULL;
}

/* Delivers the frames that wait, if the bytes have arrived or never will. */
static void
deliver(struct inbox *in, struct blob *b)
{
	struct waiting *w;
	struct msg m;

	while ((b->got == b->size || b->err.no) && (w = STAILQ_FIRST(&b->waiting))) {
		wire_frame(w->frame.p, w->frame.n, &m, NULL);
		if (!b->err.no) {
			m.fd = b->fd;
			m.flags |= FLAG_FD;
		}
		in->deliver(in->arg, &m, &b->err);
		drop_waiting(b, w);
	}
}

static int
take_blob(struct inbox *in, uint32_t id, struct slice body, struct err *e)
{
	struct blob *b;
	uint64_t size;

	if (!wire_get('8', &body.p, &body.n, &size, NULL) || find(in, id))
		return fail(e, EBADMSG, "relay: blob %u begins twice, or without its size", id);
	b = xcalloc(1, sizeof(*b));
	*b = (struct blob){.id = id, .size = size};
	STAILQ_INIT(&b->waiting);
	b->fd = fault("inbox.memfd", EMFILE) ? -1 : memfd_create("ddip-relay", MFD_CLOEXEC);
	if (b->fd < 0 || ftruncate(b->fd, (off_t)size) < 0)
		fail_errno(&b->err, "no memory for %llu bytes", (unsigned long long)size);
	LIST_INSERT_HEAD(&in->blobs, b, link);
	return 0;
}

static int
take_bytes(struct inbox *in, struct blob *b, struct slice body, struct err *e)
{
	if (body.n > b->size - b->got)
		return fail(e, EBADMSG, "relay: blob %u is longer than it said", b->id);
	if (!b->err.no && pwrite_all("inbox.write", b->fd, body.p, body.n, b->got) < body.n)
		fail_errno(&b->err, "no memory for %llu bytes", (unsigned long long)b->size);
	b->got += body.n;
	deliver(in, b);
	return 0;
}

static int
take_with(struct inbox *in, struct blob *b, struct slice body, struct err *e)
{
	struct waiting *w;
	struct msg m;

	if (packet_frame(body, &m, e) < 0)
		return -e->no;
	w = xcalloc(1, sizeof(*w));
	buf_add(&w->frame, body.p, body.n);
	STAILQ_INSERT_TAIL(&b->waiting, w, link);
	deliver(in, b);
	return 0;
}

int
inbox_take(struct inbox *in, int type, struct slice body, struct err *e)
{
	struct blob *b;
	uint32_t id;

	if (!packet_id(&body, &id))
		return fail(e, EBADMSG, "relay: a packet without its number");
	if (type == PACKET_BLOB)
		return take_blob(in, id, body, e);
	b = find(in, id);
	if (!b)
		return fail(e, EBADMSG, "relay: there is no blob %u", id);
	if (type == PACKET_BYTES)
		return take_bytes(in, b, body, e);
	if (type == PACKET_WITH)
		return take_with(in, b, body, e);
	drop(b);
	return 0;
}

static struct waiting *
find_waiting(const struct blob *b, unsigned slot, uint64_t tag)
{
	struct waiting *w;
	struct msg m;

	STAILQ_FOREACH (w, &b->waiting, link) {
		wire_frame(w->frame.p, w->frame.n, &m, NULL);
		if (m.slot == slot && m.tag == tag)
			break;
	}
	return w;
}

bool
inbox_cancel(struct inbox *in, unsigned slot, uint64_t tag)
{
	struct waiting *w;
	struct blob *b;

	LIST_FOREACH (b, &in->blobs, link) {
		w = find_waiting(b, slot, tag);
		if (w) {
			drop_waiting(b, w);
			return true;
		}
	}
	return false;
}
