/* Sends the contents of descriptors in pieces, each blob in turn. */
#include "relay/outbox.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

struct blob {
	TAILQ_ENTRY(blob) link;
	uint32_t id;
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t size, sent;
	unsigned users; /* frames that may still need it */
	unsigned slot;	/* slot and tag of the last frame that it was sent with */
	uint64_t tag;
	bool once; /* it is forgotten once all of it is sent */
	struct outbox *out;
	bool pipe, dry;	     /* dry: it has no bytes at the moment */
	struct watch *watch; /* of a dry pipe */
};

struct outbox {
	struct loop *loop;
	struct link *link;
	uint32_t last_id;
	TAILQ_HEAD(blobs, blob) blobs; /* the first is the next to send a piece */
	char piece[LINK_PIECE];
};

struct outbox *
outbox_new(struct loop *loop, struct link *l)
{
	struct outbox *o = xcalloc(1, sizeof(*o));

	o->loop = loop;
	o->link = l;
	TAILQ_INIT(&o->blobs);
	return o;
}

static void
drop(struct outbox *o, struct blob *b)
{
	TAILQ_REMOVE(&o->blobs, b, link);
	loop_fd_del(b->watch);
	close(b->fd);
	free(b);
}

void
outbox_free(struct outbox *o)
{
	while (o && !TAILQ_EMPTY(&o->blobs))
		drop(o, TAILQ_FIRST(&o->blobs));
	free(o);
}

/* It, or the rest of it, is no longer needed: the other side forgets it, too. */
static void
forget(struct outbox *o, struct blob *b)
{
	packet_send(o->link, PACKET_FREE, false, b->id, (struct slice){0});
	drop(o, b);
}

static struct blob *
find_file(struct outbox *o, const struct stat *st)
{
	struct blob *b;

	TAILQ_FOREACH (b, &o->blobs, link)
		if (b->dev == st->st_dev && b->ino == st->st_ino &&
		    b->size == (uint64_t)st->st_size)
			return b;
	return NULL;
}

static void
on_pipe(void *arg, uint32_t events)
{
	struct blob *b = arg;

	b->dry = false;
	loop_fd_del(b->watch);
	b->watch = NULL;
	link_more(b->out->link);
}

/* How many bytes come with m: those of the file, or those after the head that a pipe brings. */
static uint64_t
size_of(const struct msg *m, const struct stat *st)
{
	struct slice head = {0};
	uint64_t size = (uint64_t)st->st_size;

	if (S_ISFIFO(st->st_mode) &&
	    wire_unpack(m, Rget, NULL, NULL, NULL, NULL, &size, &head) == 0)
		size -= MIN(size, (uint64_t)head.n);
	return size;
}

/* Begins a blob of the file or pipe behind fd. Returns NULL with *e set on failure. */
static struct blob *
begin(struct outbox *o, const struct msg *m, const struct stat *st, struct err *e)
{
	struct blob *b = xcalloc(1, sizeof(*b));
	struct buf size = {0};

	*b =
	    (struct blob){.fd = fault("outbox.dup", EMFILE) ? -1 : fcntl(m->fd, F_DUPFD_CLOEXEC, 3),
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = size_of(m, st),
		.pipe = S_ISFIFO(st->st_mode),
		.out = o};
	if (b->fd < 0) {
		fail_errno(e, "relay: a descriptor's bytes");
		free(b);
		return NULL;
	}
	b->id = ++o->last_id;
	TAILQ_INSERT_TAIL(&o->blobs, b, link);
	wire_put_number(&size, '8', b->size);
	packet_send(o->link, PACKET_BLOB, false, b->id, (struct slice){size.p, size.n});
	buf_free(&size);
	return b;
}

static struct blob *
find(struct outbox *o, uint32_t id)
{
	struct blob *b;

	TAILQ_FOREACH (b, &o->blobs, link)
		if (b->id == id)
			break;
	return b;
}

uint32_t
outbox_send(struct outbox *o, const struct msg *m, struct err *e)
{
	struct stat st;
	struct blob *b;

	if (fstat(m->fd, &st) < 0) {
		fail_errno(e, "relay: the descriptor of %s", wire_name(m->type));
		return 0;
	}
	b = find_file(o, &st);
	if (!b)
		b = begin(o, m, &st, e);
	if (!b)
		return 0;
	b->users++;
	b->slot = m->slot;
	b->tag = m->tag;
	packet_send_with(o->link, b->id, m);
	link_more(o->link);
	return b->id;
}

void
outbox_release(struct outbox *o, uint32_t id)
{
	struct blob *b = find(o, id);

	if (b && --b->users == 0)
		forget(o, b);
}

bool
outbox_release_rest(struct outbox *o, uint32_t id)
{
	const struct blob *b = find(o, id);

	if (!b || b->users > 1 || b->sent == b->size)
		return false;
	outbox_release(o, id);
	return true;
}

bool
outbox_answer(struct outbox *o, const struct msg *m, struct err *e)
{
	uint32_t id = outbox_send(o, m, e);
	struct blob *b = find(o, id);

	if (!b)
		return false;
	b->once = true;
	if (b->size == 0)
		forget(o, b);
	return true;
}

bool
outbox_cancel(struct outbox *o, unsigned slot, uint64_t tag)
{
	struct blob *b;

	TAILQ_FOREACH (b, &o->blobs, link)
		if (b->once && !b->pipe && b->users == 1 && b->slot == slot && b->tag == tag)
			break;
	if (b)
		forget(o, b);
	return b != NULL;
}

/* If the file has become shorter, zeros are sent: whoever truncated it harmed only itself. */
static void
send_piece(struct outbox *o, struct blob *b)
{
	size_t n = (size_t)MIN(b->size - b->sent, (uint64_t)link_piece(o->link));
	ssize_t got = pread(b->fd, o->piece, n, (off_t)b->sent);

	for (size_t i = got > 0 ? (size_t)got : 0; i < n; i++)
		o->piece[i] = '\0';
	b->sent += n;
	packet_send(o->link, PACKET_BYTES, true, b->id, (struct slice){o->piece, n});
}

/* The same of a pipe. Returns false if it has no bytes: it is dry, or has ended and b is gone. */
static bool
send_from_pipe(struct outbox *o, struct blob *b)
{
	size_t n = (size_t)MIN(b->size - b->sent, (uint64_t)link_piece(o->link));
	ssize_t got = read(b->fd, o->piece, n);

	if (got > 0) {
		b->sent += (size_t)got;
		packet_send(
		    o->link, PACKET_BYTES, true, b->id, (struct slice){o->piece, (size_t)got});
	} else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		b->dry = true;
		b->watch = loop_fd(o->loop, b->fd, EPOLLIN, on_pipe, b);
	} else {
		forget(o, b);
	}
	return got > 0;
}

/* The next that has bytes to send; NULL: none. */
static struct blob *
next_blob(struct outbox *o)
{
	struct blob *b;

	TAILQ_FOREACH (b, &o->blobs, link)
		if (b->sent < b->size && !b->dry)
			break;
	return b;
}

bool
outbox_more(struct outbox *o)
{
	struct blob *b;

	while ((b = next_blob(o))) {
		TAILQ_REMOVE(&o->blobs, b, link);
		TAILQ_INSERT_TAIL(&o->blobs, b, link);
		if (!b->pipe)
			send_piece(o, b);
		else if (!send_from_pipe(o, b))
			continue;
		if (b->once && b->sent == b->size)
			forget(o, b);
		return true;
	}
	return false;
}
