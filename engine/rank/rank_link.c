/* Sending on the control socket, from any thread: at once where there is room, which saves a
 * thread's wake-up. */
#define _GNU_SOURCE
#include "rank/rank.h"
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
	int fd;
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

	/* a forked rank starts with the zygote's socket and nothing that waits */
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

/* Sends f from where it stands. 1: all is out, 0: no room, or -errno. */
static int
push(struct frame *f)
{
	while (f->sent < f->b.n) {
		union {
			struct cmsghdr h;
			char space[CMSG_SPACE(sizeof(int))];
		} control = {0};
		struct iovec iov = {f->b.p + f->sent, f->b.n - f->sent};
		struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;

		if (f->fd >= 0) {
			mh.msg_control = &control;
			mh.msg_controllen = sizeof(control.space);
			control.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
			    .cmsg_level = SOL_SOCKET,
			    .cmsg_type = SCM_RIGHTS};
			memcpy(CMSG_DATA(&control.h), &f->fd, sizeof(int));
		}
		n = sendmsg(self.fd, &mh, MSG_NOSIGNAL | (self.blocking ? 0 : MSG_DONTWAIT));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (f->fd >= 0)
			close(f->fd);
		f->fd = -1; /* it went with the first byte */
		f->sent += (size_t)n;
	}
	return 1;
}

bool
rank_link_push(void)
{
	struct frame *f;

	rank_link_lock();
	/* A broken connection is noticed by who reads it. */
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
	struct frame f = {.fd = m->fd >= 0 ? fcntl(m->fd, F_DUPFD_CLOEXEC, 3) : -1}, *waits;
	struct msg out = *m;

	if (m->fd >= 0 && f.fd < 0)
		note("%s: its descriptor: %s", wire_name(m->type), strerrordesc_np(errno));
	out.flags = (uint8_t)((m->flags & ~FLAG_FD) | (f.fd >= 0 ? FLAG_FD : 0));
	wire_pack_raw(&f.b, &out);
	rank_link_lock();
	if (STAILQ_EMPTY(&self.waits) && push(&f) != 0) {
		rank_link_unlock();
		if (f.fd >= 0)
			close(f.fd);
		buf_free(&f.b);
		return;
	}
	waits = xmalloc(sizeof(*waits));
	*waits = f;
	STAILQ_INSERT_TAIL(&self.waits, waits, link);
	if (self.kick)
		self.kick();
	rank_link_unlock();
}
