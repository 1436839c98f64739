/*
 * Sends on the control socket, from any thread: immediately if there is room, which avoids waking
 * the I/O thread.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "frame.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct frame {
	STAILQ_ENTRY(frame) link;
	struct buf b;
	size_t sent;
	int fd; /* sent with the first byte */
};

static struct {
	pthread_mutex_t lock;
	int fd;
	bool blocking;
	void (*kick)(void);
	STAILQ_HEAD(, frame) waits;
} self = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .waits = STAILQ_HEAD_INITIALIZER(self.waits)};

void
rank_link_open(int fd, bool blocking)
{
	struct frame *f;

	/* a forked rank starts without the messages queued in the zygote */
	while ((f = STAILQ_FIRST(&self.waits))) {
		STAILQ_REMOVE_HEAD(&self.waits, link);
		buf_free(&f->b);
		free(f);
	}
	self.fd = fd;
	self.blocking = blocking;
	self.kick = NULL;
}

void
rank_link_kick(void (*kick)(void))
{
	self.kick = kick;
}

void
rank_link_lock(void)
{
	pthread_mutex_lock(&self.lock);
}

void
rank_link_unlock(void)
{
	pthread_mutex_unlock(&self.lock);
}

/* A message is lost, and its receiver would wait forever: makes both sides see the end. */
static int
broken(int no)
{
	if (no != -EPIPE && no != -ECONNRESET)
		note("sending failed: %s", strerror(-no));
	shutdown(self.fd, SHUT_RDWR);
	return no;
}

/* Sends the rest of f. Returns 1 if all is sent, 0 if there is no room, or -errno if the connection
 * is broken. */
static int
push(struct frame *f)
{
	while (f->sent < f->b.n) {
		ssize_t n = frame_send(self.fd, true, f->b.p + f->sent, f->b.n - f->sent,
		    f->sent ? -1 : f->fd, self.blocking);

		if (n < 0)
			return n == -EAGAIN ? 0 : broken((int)n);
		f->sent += (size_t)n;
	}
	return 1;
}

/* Gives a queued frame a descriptor of its own. If the process has none left, a reply becomes an
 * error that says so, and a notice is sent without a descriptor. */
static void
own_descriptor(struct frame *f, const struct msg *m)
{
	struct err e;

	f->fd = f->sent ? -1 : fcntl(m->fd, F_DUPFD_CLOEXEC, 3);
	if (f->sent || f->fd >= 0)
		return;
	frame_no_descriptor(&e);
	if (wire_kind(m->type) != 'R') {
		note("%s: %s", wire_name(m->type), e.text);
		wire_drop_fd(f->b.p);
		return;
	}
	buf_clear(&f->b);
	wire_pack_error(&f->b, m->slot, m->tag, &e);
}

bool
rank_link_push(void)
{
	struct frame *f;

	rank_link_lock();
	/* The reader notices a broken connection. */
	while ((f = STAILQ_FIRST(&self.waits)) && push(f) != 0) {
		STAILQ_REMOVE_HEAD(&self.waits, link);
		if (f->fd >= 0)
			close(f->fd);
		buf_free(&f->b);
		free(f);
	}
	rank_link_unlock();
	return f != NULL;
}

void
rank_link_send(const struct msg *m)
{
	struct frame f = {.fd = m->fd}, *waits;
	struct msg out = *m;

	if (wire_kind(m->type) == 'R')
		rank_queue_answered(m->tag);
	out.flags = (uint8_t)((m->flags & ~FLAG_FD) | (m->fd >= 0 ? FLAG_FD : 0));
	wire_pack_raw(&f.b, &out);
	rank_link_lock();
	if (STAILQ_EMPTY(&self.waits) && push(&f) != 0) {
		rank_link_unlock();
		buf_free(&f.b);
		return;
	}
	if (m->fd >= 0)
		own_descriptor(&f, m);
	waits = xmalloc(sizeof(*waits));
	*waits = f;
	STAILQ_INSERT_TAIL(&self.waits, waits, link);
	if (self.kick)
		self.kick();
	rank_link_unlock();
}
