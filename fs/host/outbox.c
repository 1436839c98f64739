/* Sends the contents of descriptors in pieces, each file in turn. */
#include "host/outbox.h"
#include "bulk.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

/* A T that comes with a file, until it is answered. */
struct user {
	TAILQ_ENTRY(user) link;
	uint64_t tag;
	struct buf frame; /* empty: it is sent */
};

struct file {
	TAILQ_ENTRY(file) link;
	uint32_t blob;
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t size, sent;
	bool begun;
	TAILQ_HEAD(users, user) users;
};

struct outbox {
	struct conn *control;
	struct bulk *bulk;
	uint32_t last_blob;
	struct buf ready;	  /* what is sent next */
	TAILQ_HEAD(, file) files; /* the first is the next to send a piece */
	int in_use;		  /* the descriptor of which a piece is being sent; -1: none */
	int unused;		  /* likewise, to be closed then */
};

static bool
is_sent(const struct file *f)
{
	return f->begun && f->sent == f->size;
}

static void
drop_user(struct file *f, struct user *u)
{
	TAILQ_REMOVE(&f->users, u, link);
	buf_free(&u->frame);
	free(u);
}

static void
drop_file(struct outbox *o, struct file *f)
{
	while (!TAILQ_EMPTY(&f->users))
		drop_user(f, TAILQ_FIRST(&f->users));
	TAILQ_REMOVE(&o->files, f, link);
	if (f->fd == o->in_use)
		o->unused = f->fd;
	else
		close(f->fd);
	free(f);
}

/* No piece is being sent. */
static void
close_unused(struct outbox *o)
{
	if (o->unused >= 0)
		close(o->unused);
	o->unused = o->in_use = -1;
}

void
outbox_free(struct outbox *o)
{
	if (!o)
		return;
	while (!TAILQ_EMPTY(&o->files))
		drop_file(o, TAILQ_FIRST(&o->files));
	bulk_free(o->bulk);
	close_unused(o);
	buf_free(&o->ready);
	free(o);
}

/* All its bytes are sent: so is this. */
static void
send_user(struct buf *to, const struct file *f, struct user *u)
{
	wire_pack(to, Nwith, 0, SLOT_AGENT, 0, f->blob, ((struct slice){u->frame.p, u->frame.n}));
	buf_free(&u->frame);
}

static void
send_piece(struct outbox *o, struct file *f, struct buf *to)
{
	size_t n = (size_t)MIN(f->size - f->sent, (uint64_t)BULK_PIECE), at = to->n;
	struct user *u;

	wire_pack(to, Nblob, 0, SLOT_AGENT, 0, f->blob, f->size, f->sent, (struct slice){0});
	wire_goes_on(to, at, n);
	bulk_add_rest(o->bulk, f->fd, f->sent, n);
	o->in_use = f->fd;
	f->sent += n;
	f->begun = true;
	if (!is_sent(f))
		return;
	TAILQ_FOREACH (u, &f->users, link)
		send_user(&o->ready, f, u);
}

static bool
on_next(void *arg, struct buf *frame)
{
	struct outbox *o = arg;
	struct file *f;

	close_unused(o);
	buf_add(frame, o->ready.p, o->ready.n);
	buf_clear(&o->ready);
	TAILQ_FOREACH (f, &o->files, link)
		if (!is_sent(f))
			break;
	if (f) {
		TAILQ_REMOVE(&o->files, f, link);
		TAILQ_INSERT_TAIL(&o->files, f, link);
		send_piece(o, f, frame);
	}
	return frame->n > 0;
}

struct outbox *
outbox_new(struct loop *loop, struct conn *control, int fd)
{
	struct outbox *o = xcalloc(1, sizeof(*o));

	o->control = control;
	TAILQ_INIT(&o->files);
	o->in_use = o->unused = -1;
	o->bulk = bulk_new(loop, fd, control, 0, on_next, o);
	return o;
}

static struct file *
find_file(struct outbox *o, const struct stat *st)
{
	struct file *f;

	TAILQ_FOREACH (f, &o->files, link)
		if (f->dev == st->st_dev && f->ino == st->st_ino &&
		    f->size == (uint64_t)st->st_size)
			break;
	return f;
}

/* Returns NULL with *e set on failure. */
static struct file *
new_file(struct outbox *o, int from, const struct stat *st, struct err *e)
{
	int fd = fault("outbox.dup", EMFILE) ? -1 : fcntl(from, F_DUPFD_CLOEXEC, 0);
	struct file *f;

	if (fd < 0) {
		fail_errno(e, "a descriptor's bytes");
		return NULL;
	}
	f = xcalloc(1, sizeof(*f));
	*f = (struct file){.blob = ++o->last_blob,
	    .fd = fd,
	    .dev = st->st_dev,
	    .ino = st->st_ino,
	    .size = (uint64_t)st->st_size};
	TAILQ_INIT(&f->users);
	TAILQ_INSERT_TAIL(&o->files, f, link);
	return f;
}

void
outbox_send(struct outbox *o, const struct msg *m)
{
	struct msg plain = *m;
	struct err e = {0};
	struct file *f = NULL;
	struct user *u;
	struct stat st;

	if (fstat(m->fd, &st) < 0)
		fail_errno(&e, "the descriptor of %s", wire_name(m->type));
	else if (!(f = find_file(o, &st)))
		f = new_file(o, m->fd, &st, &e);
	if (!f) {
		conn_refuse(o->control, m->slot, m->tag, &e);
		return;
	}
	u = xcalloc(1, sizeof(*u));
	u->tag = m->tag;
	plain.fd = -1;
	plain.flags &= (uint8_t)~FLAG_FD;
	wire_pack_raw(&u->frame, &plain);
	TAILQ_INSERT_TAIL(&f->users, u, link);
	if (is_sent(f))
		send_user(&o->ready, f, u);
	bulk_ready(o->bulk);
}

static struct user *
find_user(const struct outbox *o, uint64_t tag, struct file **of)
{
	struct file *f;
	struct user *u;

	TAILQ_FOREACH (f, &o->files, link)
		TAILQ_FOREACH (u, &f->users, link)
			if (u->tag == tag) {
				*of = f;
				return u;
			}
	return NULL;
}

void
outbox_release(struct outbox *o, uint64_t tag)
{
	struct file *f;
	struct user *u = find_user(o, tag, &f);

	if (!u)
		return;
	drop_user(f, u);
	if (!TAILQ_EMPTY(&f->users))
		return;
	if (f->begun)
		wire_pack(&o->ready, Nforget, 0, SLOT_AGENT, 0, f->blob);
	drop_file(o, f);
	bulk_ready(o->bulk);
}

void
outbox_cancel(struct outbox *o, unsigned slot, uint64_t tag)
{
	struct file *f;
	const struct user *u = find_user(o, tag, &f);
	struct err e;

	if (u && u->frame.n) {
		outbox_release(o, tag);
		wire_cancelled(&e);
		conn_refuse(o->control, slot, tag, &e);
		return;
	}
	wire_pack(&o->ready, Ncancel, 0, slot, 0, tag);
	bulk_ready(o->bulk);
}
