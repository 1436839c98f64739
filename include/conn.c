/* A framed connection: out queue, partial reads, descriptors by SCM_RIGHTS. */
#include "conn.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 64 << 10, FDS_PER_READ = 16 };

struct fd_out { /* a descriptor that leaves with the byte at this place of the stream */
	uint64_t at;
	int fd;
	bool lent; /* the caller's own: sent before sent_frame() returns */
	STAILQ_ENTRY(fd_out) link;
};

struct conn {
	struct loop *loop;
	int rfd, wfd;
	bool is_socket, closed, busy, doomed; /* busy: inside a callback; doomed: freed meanwhile */
	bool mute;			      /* nothing can be sent any more */
	struct err why;			      /* for what reason, if it is ours */
	struct watch *in,
	    *out; /* out only while something waits (or shares `in` on one descriptor) */
	struct buf rbuf, wbuf;
	size_t sent;	  /* bytes of wbuf that are out */
	uint64_t written; /* bytes of the stream before wbuf */
	STAILQ_HEAD(, fd_out) fds_out;
	int fds_in[256];
	unsigned n_in;
	conn_msg_fn *msg;
	conn_close_fn *close;
	void *arg;
};

static conn_trace_fn *trace;

void
conn_trace(conn_trace_fn *fn)
{
	trace = fn;
}

static void
show(bool in, const struct msg *m)
{
	struct buf b = {0};

	if (trace)
		trace(in, m);
	if (!debug_on("wire"))
		return;
	wire_print(m, &b);
	debug("wire", "%s %s", in ? "<-" : "->", b.p);
	buf_free(&b);
}

static void
unqueue_fd(struct conn *c, struct fd_out *o)
{
	STAILQ_REMOVE_HEAD(&c->fds_out, link);
	if (!o->lent)
		close(o->fd);
	free(o);
}

static void
destroy(struct conn *c)
{
	struct fd_out *o;

	while ((o = STAILQ_FIRST(&c->fds_out)))
		unqueue_fd(c, o);
	while (c->n_in)
		close(c->fds_in[--c->n_in]);
	buf_free(&c->rbuf);
	buf_free(&c->wbuf);
	free(c);
}

static void
hang_up(struct conn *c)
{
	if (c->closed)
		return;
	c->closed = true;
	loop_fd_del(c->in);
	loop_fd_del(c->out);
	c->in = c->out = NULL;
	close(c->rfd);
	if (c->wfd != c->rfd)
		close(c->wfd);
}

void
conn_free(struct conn *c)
{
	if (!c)
		return;
	hang_up(c);
	if (c->busy)
		c->doomed = true;
	else
		destroy(c);
}

/* The peer is gone (e NULL) or speaks nonsense: says so once. May free c. */
static void
lost(struct conn *c, const struct err *e)
{
	bool was_busy = c->busy;

	if (c->closed)
		return;
	hang_up(c);
	c->busy = true;
	c->close(c->arg, e ? e : &c->why);
	c->busy = was_busy;
	if (c->doomed && !c->busy)
		destroy(c);
}

/* Sends what waits. Returns 0, or -errno if the connection is broken. */
static int
push(struct conn *c)
{
	while (c->sent < c->wbuf.n) {
		struct fd_out *o = STAILQ_FIRST(&c->fds_out);
		size_t n = c->wbuf.n - c->sent;

		union {
			struct cmsghdr h;
			char space[CMSG_SPACE(sizeof(int))];
		} control = {0};
		struct iovec iov = {c->wbuf.p + c->sent, n};
		struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
		bool with_fd = false;
		ssize_t w;

		if (o && o->at > c->written + c->sent) {
			iov.iov_len = MIN(n, (size_t)(o->at - c->written - c->sent));
		} else if (o) {
			with_fd = true;
			mh.msg_control = &control;
			mh.msg_controllen = sizeof(control.space);
			control.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
			    .cmsg_level = SOL_SOCKET,
			    .cmsg_type = SCM_RIGHTS};
			memcpy(CMSG_DATA(&control.h), &o->fd, sizeof(int));
			/* the descriptor must not be merged with the next one's bytes */
			if (STAILQ_NEXT(o, link))
				iov.iov_len = MIN(n, (size_t)(STAILQ_NEXT(o, link)->at - o->at));
		}
		if (fault("conn.write", ETOOMANYREFS))
			w = -1;
		else if (c->is_socket)
			w = sendmsg(c->wfd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
		else
			w = write(c->wfd, iov.iov_base, iov.iov_len);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (with_fd)
			unqueue_fd(c, o);
		c->sent += (size_t)w;
	}
	c->written += c->sent;
	c->sent = 0;
	buf_clear(&c->wbuf);
	return 0;
}

static void on_event(void *arg, uint32_t events);

/* What can't be written any more is noticed by the read side, which has the last words: the peer
 * may live, and must see the end. */
static void
stop_writing(struct conn *c, int no)
{
	c->mute = true;
	if (no != EPIPE && no != ECONNRESET)
		fail(&c->why, no, "sending failed: %s", strerrordesc_np(no));
	if (c->is_socket) {
		shutdown(c->wfd, SHUT_WR);
	} else if (c->wfd != c->rfd) {
		loop_fd_del(c->out);
		c->out = NULL;
		close(c->wfd);
		c->wfd = c->rfd;
	}
}

/* Sends what waits, as far as there is room. */
static void
send_some(struct conn *c)
{
	int r = c->mute ? 0 : push(c);

	if (r < 0)
		stop_writing(c, -r);
}

/* Watches for room while something waits. */
static void
watch_out(struct conn *c)
{
	bool want = !c->mute && c->sent < c->wbuf.n;

	if (c->rfd == c->wfd) {
		loop_fd_events(c->in, EPOLLIN | (want ? EPOLLOUT : 0));
	} else if (want && !c->out) {
		c->out = loop_fd(c->loop, c->wfd, EPOLLOUT, on_event, c);
	} else if (!want && c->out) {
		loop_fd_del(c->out);
		c->out = NULL;
	}
}

static void
send_queued(struct conn *c, bool was_empty)
{
	if (c->closed || !was_empty)
		return;
	send_some(c);
	if (!c->mute && c->sent < c->wbuf.n)
		watch_out(c);
}

/* True: it could not be copied, and is the caller's still. */
static bool
queue_fd(struct conn *c, int fd, size_t at)
{
	struct fd_out *o = xcalloc(1, sizeof(*o));
	int copy = fault("conn.dup", EMFILE) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	*o = (struct fd_out){.at = c->written + at, .fd = copy < 0 ? fd : copy, .lent = copy < 0};
	STAILQ_INSERT_TAIL(&c->fds_out, o, link);
	return o->lent;
}

static void
sent_frame(struct conn *c, size_t at, int fd, bool was_empty)
{
	struct msg m;

	bool lent = fd >= 0 && queue_fd(c, fd, at);

	if (trace || debug_on("wire")) {
		wire_frame(c->wbuf.p + at, c->wbuf.n - at, &m, NULL);
		show(false, &m);
	}
	send_queued(c, was_empty);
	/* No descriptor is left for a copy: it must be out before the caller closes its own. */
	if (lent)
		conn_flush(c);
}

void
conn_send(struct conn *c, int type, int flags, unsigned slot, uint32_t tag, int fd, ...)
{
	size_t at = c->wbuf.n;
	bool was_empty = c->sent == at;
	va_list ap;

	if (c->closed || c->mute)
		return;
	va_start(ap, fd);
	wire_vpack(&c->wbuf, type, flags | (fd >= 0 ? FLAG_FD : 0), slot, tag, ap);
	va_end(ap);
	sent_frame(c, at, fd, was_empty);
}

void
conn_forward(struct conn *c, const struct msg *m)
{
	size_t at = c->wbuf.n;
	bool was_empty = c->sent == at;

	if (c->closed || c->mute)
		return;
	wire_pack_raw(&c->wbuf, m);
	sent_frame(c, at, m->fd, was_empty);
}

size_t
conn_queued(const struct conn *c)
{
	return c->wbuf.n - c->sent;
}

int
conn_fd(const struct conn *c)
{
	return c->rfd;
}

void
conn_flush(struct conn *c)
{
	while (!c->closed && !c->mute && conn_queued(c)) {
		struct pollfd p = {c->wfd, POLLOUT, 0};

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return;
		send_some(c);
	}
}

/* Reads what is there. 1: more may come, 0: end, or -errno. */
static int
pull(struct conn *c)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int) * FDS_PER_READ)];
	} control;
	struct iovec iov = {buf_room(&c->rbuf, READ_SIZE), READ_SIZE};
	struct msghdr mh = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n;

	if (fault("conn.read", ECONNRESET))
		n = -1;
	else if (c->is_socket)
		n = recvmsg(c->rfd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	else
		n = read(c->rfd, iov.iov_base, iov.iov_len);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	if (n == 0)
		return 0;
	c->rbuf.n += (size_t)n;
	if (!c->is_socket)
		return 1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&mh); h; h = CMSG_NXTHDR(&mh, h)) {
		size_t k = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		if (c->n_in + k > ARRAY_LEN(c->fds_in))
			return -EBADMSG;
		memcpy(c->fds_in + c->n_in, CMSG_DATA(h), k * sizeof(int));
		c->n_in += (unsigned)k;
	}
	return 1;
}

static int
take_fd(struct conn *c, struct msg *m, struct err *e)
{
	if (!(m->flags & FLAG_FD))
		return 0;
	if (c->n_in == 0)
		return fail(e, EBADMSG, "wire: %s came without its descriptor", wire_name(m->type));
	m->fd = c->fds_in[0];
	memmove(c->fds_in, c->fds_in + 1, --c->n_in * sizeof(int));
	return 0;
}

/* Hands over each whole frame of rbuf. Negative: nonsense. */
static int
dispatch(struct conn *c, struct err *e)
{
	size_t at = 0;
	struct msg m;
	long n = 0;

	while (!c->closed && (n = wire_frame(c->rbuf.p + at, c->rbuf.n - at, &m, e)) > 0) {
		if (take_fd(c, &m, e) < 0)
			return -EBADMSG;
		show(true, &m);
		c->msg(c->arg, &m);
		if (m.fd >= 0)
			close(m.fd);
		at += (size_t)n;
	}
	buf_drop(&c->rbuf, at);
	/* one large message must not cost its memory for ever */
	if (c->rbuf.n == 0 && c->rbuf.cap > 4 * READ_SIZE)
		buf_free(&c->rbuf);
	return (int)MIN(n, 0);
}

static void
on_event(void *arg, uint32_t events)
{
	struct conn *c = arg;
	struct err e = {0};
	int r = 1;

	c->busy = true;
	if (events & EPOLLOUT) {
		send_some(c);
		if (!c->closed)
			watch_out(c);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		r = pull(c);
		if (dispatch(c, &e) < 0)
			lost(c, &e);
		else if (r <= 0)
			lost(c, NULL);
	}
	c->busy = false;
	if (c->doomed)
		destroy(c);
}

struct conn *
conn_new(struct loop *l, int rfd, int wfd, conn_msg_fn *msg, conn_close_fn *close_fn, void *arg)
{
	struct conn *c = xcalloc(1, sizeof(*c));
	int type;
	socklen_t len = sizeof(type);

	*c = (struct conn){
	    .loop = l, .rfd = rfd, .wfd = wfd, .msg = msg, .close = close_fn, .arg = arg};
	STAILQ_INIT(&c->fds_out);
	c->is_socket = rfd == wfd && getsockopt(rfd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
	fd_nonblock(rfd, true);
	fd_nonblock(wfd, true);
	fd_cloexec(rfd, true);
	fd_cloexec(wfd, true);
	c->in = loop_fd(l, rfd, EPOLLIN, on_event, c);
	return c;
}
