/*
 * A framed connection on a loop: queues outgoing messages, hands over incoming ones, and reports
 * descriptors that could not be sent.
 */
#include "conn.h"
#include "blob.h"
#include "frame.h"
#include "gather.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

/* A larger buffer is not kept for the next message. */
enum { ROOM_KEPT = 256 << 10 };

/* Sent bytes that a queue which never empties keeps, at most, or as many as are not sent. */
enum { SENT_KEPT = 1 << 20 };

struct fd_out { /* a descriptor to send with the byte at this position of the stream */
	uint64_t at;
	int fd;
	bool lent; /* the caller's own; sent or duplicated before sent_frame() returns */
	TAILQ_ENTRY(fd_out) link;
};

struct conn {
	struct loop *loop;
	int rfd, wfd;
	bool is_socket, closed, busy, doomed; /* busy: inside a callback; doomed: freed in it */
	bool mute;			      /* nothing more can be sent */
	struct err why;			      /* reason for the close, if it is ours */
	/* out exists only while data waits; a single descriptor needs only `in` */
	struct watch *in, *out;
	struct frame_reader in_frames;
	struct buf wbuf;
	size_t sent;	  /* bytes of wbuf already sent */
	uint64_t written; /* bytes of the stream before wbuf */
	TAILQ_HEAD(fds_out, fd_out) fds_out;
	struct buf answers; /* Rerror frames to ourselves, for requests that could not be sent */
	struct timer *answer_timer;
	struct gather *gather; /* NULL: each message is sent by itself */
	struct conn *first;    /* of which it is a lane; NULL: none */
	struct blobs *blobs;   /* of a lane */
	conn_msg_fn *msg, *cut, *send_fd;
	conn_close_fn *close;
	void *arg;
};

static void
unqueue_fd(struct conn *c, struct fd_out *o)
{
	TAILQ_REMOVE(&c->fds_out, o, link);
	if (!o->lent)
		close(o->fd);
	free(o);
}

static void
destroy(struct conn *c)
{
	struct fd_out *o;

	while ((o = TAILQ_FIRST(&c->fds_out)))
		unqueue_fd(c, o);
	frame_reader_free(&c->in_frames);
	blobs_free(c->blobs);
	buf_free(&c->wbuf);
	buf_free(&c->answers);
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
	loop_timer_del(c->answer_timer);
	gather_free(c->gather);
	c->in = c->out = NULL;
	c->answer_timer = NULL;
	c->gather = NULL;
	close(c->rfd);
	if (c->wfd != c->rfd)
		close(c->wfd);
}

void
conn_free(struct conn *c)
{
	if (!c)
		return;
	gather_flush(c->gather);
	hang_up(c);
	if (c->busy)
		c->doomed = true;
	else
		destroy(c);
}

/* The peer is gone (e is NULL) or sent malformed data: reports it once. May free c. */
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

/* Sends queued data. Returns 0, or -errno if the connection is broken. */
static int
push(struct conn *c)
{
	while (c->sent < c->wbuf.n) {
		struct fd_out *o = TAILQ_FIRST(&c->fds_out);
		uint64_t at = c->written + c->sent;
		size_t n = c->wbuf.n - c->sent;
		bool with_fd = o && o->at == at;
		ssize_t w;

		/* send up to the next byte that has a descriptor */
		if (with_fd)
			o = TAILQ_NEXT(o, link);
		if (o)
			n = MIN(n, (size_t)(o->at - at));
		o = TAILQ_FIRST(&c->fds_out);
		w = frame_send(
		    c->wfd, c->is_socket, c->wbuf.p + c->sent, n, with_fd ? o->fd : -1, false);
		if (w < 0)
			return w == -EAGAIN ? 0 : (int)w;
		if (with_fd)
			unqueue_fd(c, o);
		c->sent += (size_t)w;
	}
	c->written += c->sent;
	c->sent = 0;
	buf_clear(&c->wbuf);
	return 0;
}

static void
drop_sent(struct conn *c)
{
	if (c->sent <= SENT_KEPT || c->sent < c->wbuf.n / 2)
		return;
	buf_drop(&c->wbuf, c->sent);
	c->written += c->sent;
	c->sent = 0;
}

static void on_event(void *arg, uint32_t events);

/* The connection is no longer writable. The read side reports the loss, after the peer's final
 * messages. The peer may be alive and must see the end. */
static void
stop_writing(struct conn *c, int no)
{
	c->mute = true;
	while (!TAILQ_EMPTY(&c->fds_out))
		unqueue_fd(c, TAILQ_FIRST(&c->fds_out));
	if (no != EPIPE && no != ECONNRESET)
		fail(&c->why, no, "sending failed: %s", strerror(no));
	if (c->is_socket) {
		shutdown(c->wfd, SHUT_WR);
	} else if (c->wfd != c->rfd) {
		loop_fd_del(c->out);
		c->out = NULL;
		close(c->wfd);
		c->wfd = c->rfd;
	}
}

/* Sends queued data until it would block. */
static void
send_some(struct conn *c)
{
	int r = c->mute ? 0 : push(c);

	if (r < 0)
		stop_writing(c, -r);
}

/* Watches for EPOLLOUT while data waits. */
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

/* Answers our own requests that could not be sent, as the peer would. */
static void
give_answers(void *arg)
{
	struct conn *c = arg;
	struct buf frames = c->answers;
	size_t at = 0;
	struct msg m;
	long n;

	c->answer_timer = NULL;
	c->answers = (struct buf){0};
	c->busy = true;
	while (!c->closed && (n = wire_frame(frames.p + at, frames.n - at, &m, NULL)) > 0) {
		frame_show(true, &m);
		c->msg(c->arg, &m);
		at += (size_t)n;
	}
	c->busy = false;
	buf_free(&frames);
	if (c->doomed)
		destroy(c);
}

static void
give_answers_later(struct conn *c)
{
	if (c->answers.n && !c->answer_timer)
		c->answer_timer = loop_timer(c->loop, 0, give_answers, c);
}

void
conn_refuse(struct conn *c, unsigned slot, uint64_t tag, const struct err *e)
{
	if (c->closed) /* its owner answers what it has asked */
		return;
	wire_pack_error(&c->answers, slot, tag, e);
	give_answers_later(c);
}

/* The last frame, none of which has been sent, cannot wait: no descriptor is left to duplicate the
 * one that goes with it. */
static void
withdraw(struct conn *c, size_t at, struct fd_out *o)
{
	TAILQ_REMOVE(&c->fds_out, o, link);
	free(o);
	frame_withdraw(&c->wbuf, at, &c->answers);
	give_answers_later(c);
}

/* Sends the frame at `at` of wbuf (or, without a descriptor, the frames from there on), or leaves
 * it there until the descriptor is writable. */
static void
sent_frame(struct conn *c, size_t at, int fd, bool was_empty)
{
	uint64_t place = c->written + at;
	struct fd_out *o;

	if (fd >= 0) {
		o = xmalloc(sizeof(*o));
		*o = (struct fd_out){.at = place, .fd = fd, .lent = true};
		TAILQ_INSERT_TAIL(&c->fds_out, o, link);
	}
	frame_show_all(c->wbuf.p + at, c->wbuf.n - at);
	send_queued(c, was_empty);
	o = TAILQ_LAST(&c->fds_out, fds_out);
	if (fd < 0 || !o || o->at != place)
		return; /* sent, or never will be */
	o->fd = fault("conn.dup", EMFILE) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	o->lent = false;
	if (o->fd < 0)
		withdraw(c, at, o);
}

static void
send_gathered(void *arg, struct slice frames)
{
	struct conn *c = arg;
	bool was_empty;
	size_t at;

	drop_sent(c);
	at = c->wbuf.n;
	was_empty = c->sent == at;
	buf_add(&c->wbuf, frames.p, frames.n);
	sent_frame(c, at, -1, was_empty);
}

void
conn_gather(struct conn *c)
{
	c->gather = gather_new(c->loop, send_gathered, c);
}

void
conn_on_fd(struct conn *c, conn_msg_fn *send)
{
	c->send_fd = send;
}

void
conn_beside(struct conn *c, struct conn *first)
{
	c->first = first;
	c->blobs = blobs_new();
}

void
conn_forward(struct conn *c, const struct msg *m)
{
	struct msg copy = *m;
	bool was_empty;
	size_t at;

	if (c->closed || c->mute || (c->gather && gather_take(c->gather, m)))
		return;
	if (m->fd >= 0 && c->send_fd) {
		frame_show(false, m);
		c->send_fd(c->arg, &copy);
		return;
	}
	drop_sent(c);
	at = c->wbuf.n;
	was_empty = c->sent == at;
	wire_pack_raw(&c->wbuf, m);
	sent_frame(c, at, m->fd, was_empty);
}

void
conn_send(struct conn *c, int type, int flags, unsigned slot, uint64_t tag, int fd, ...)
{
	struct buf frame = {0};
	struct msg m;
	va_list ap;

	if (c->closed || c->mute)
		return;
	va_start(ap, fd);
	flags |= fd >= 0 ? FLAG_FD : 0;
	wire_vpack(&frame, type, flags, slot, tag, ap);
	va_end(ap);
	m = (struct msg){.type = (uint8_t)type,
	    .flags = (uint8_t)flags,
	    .slot = slot,
	    .tag = tag,
	    .fd = fd,
	    .body = frame.p + WIRE_HEADER,
	    .len = (uint32_t)frame.n - WIRE_HEADER};
	conn_forward(c, &m);
	buf_free(&frame);
}

void
conn_send_many(struct conn *c, struct slice who, int type, int flags, ...)
{
	struct buf frame = {0};
	va_list ap;

	va_start(ap, flags);
	wire_vpack(&frame, type, flags, 0, 0, ap);
	va_end(ap);
	conn_send(c, Nmany, 0, SLOT_AGENT, 0, -1, 0u, who, ((struct slice){frame.p, frame.n}));
	buf_free(&frame);
}

bool
conn_waits(struct conn *c)
{
	gather_flush(c->gather);
	return !c->closed && !c->mute && conn_queued(c) > 0;
}

size_t
conn_queued(const struct conn *c)
{
	return c->wbuf.n - c->sent;
}

void
conn_on_cut(struct conn *c, conn_msg_fn *cut)
{
	c->cut = cut;
}

int
conn_fd(const struct conn *c)
{
	return c->rfd;
}

void
conn_flush(struct conn *c)
{
	gather_flush(c->gather);
	while (!c->closed && !c->mute && conn_queued(c)) {
		struct pollfd p = {c->wfd, POLLOUT, 0};

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return;
		send_some(c);
	}
}

/* The object of an Rget that arrived without its descriptor: nobody here knows its handle. */
static void
release_object(struct conn *c, const struct msg *m)
{
	uint32_t handle = 0;

	if (wire_unpack(m, Rget, NULL, NULL, &handle, NULL, NULL, NULL) == 0 && handle)
		conn_send(c->first ? c->first : c, Nfree, 0, m->slot, 0, -1, handle);
}

/* m arrived without its descriptor: only this request, or the one that it answers, fails. */
static void
on_cut(struct conn *c, struct msg *m, const struct err *e)
{
	struct buf error = {0};
	struct msg r;

	m->fd = -1;
	switch (wire_kind(m->type)) {
	case 'T':
		if (c->cut)
			c->cut(c->arg, m);
		else
			conn_send(c->first ? c->first : c, Rerror, 0, m->slot, m->tag, -1,
			    (uint32_t)e->no, slice_text(e->text), slice_text(""));
		break;
	case 'R':
		release_object(c, m);
		wire_pack_error(&error, m->slot, m->tag, e);
		wire_frame(error.p, error.n, &r, NULL);
		c->msg(c->arg, &r);
		break;
	default:
		c->msg(c->arg, m);
	}
	buf_free(&error);
}

/* Splits a message for, or from, many engines. */
static int
take_many(struct conn *c, const struct msg *m, struct err *e)
{
	struct wire_many it;
	struct msg each;

	if (wire_many_begin(&it, m, e) < 0)
		return -e->no;
	while (!c->closed && wire_many_next(&it, &each))
		c->msg(c->arg, &each);
	wire_many_end(&it);
	return 0;
}

/* A part of a blob, or a message that comes with one. */
static int
take_blob(struct conn *c, const struct msg *m, struct err *e)
{
	struct msg whole;
	int r = blobs_take(c->blobs, m, &whole, e);

	if (r <= 0)
		return r;
	frame_show(true, &whole);
	if (whole.fd < 0)
		on_cut(c, &whole, e);
	else
		c->msg(c->arg, &whole);
	if (whole.fd >= 0)
		close(whole.fd);
	return 0;
}

/* Hands over a frame. Returns a negative value for malformed data. */
static int
take_frame(struct conn *c, struct msg *m, struct err *e)
{
	struct err cut;

	frame_show(true, m);
	if (m->type == Nmany)
		return take_many(c, m, e);
	if (c->blobs && blobs_is(m))
		return take_blob(c, m, e);
	if (m->fd == FRAME_FD_CUT) {
		frame_no_descriptor(&cut);
		on_cut(c, m, &cut);
	} else {
		c->msg(c->arg, m);
	}
	return 0;
}

/* Hands over each whole frame received. Returns a negative value for malformed data. */
static int
dispatch(struct conn *c, struct err *e)
{
	struct buf *bytes = &c->in_frames.bytes;
	size_t at = 0;
	struct msg m;
	long n = 0;

	while (!c->closed && (n = frame_take(&c->in_frames, at, &m, e)) > 0) {
		int r = take_frame(c, &m, e);

		if (m.fd >= 0)
			close(m.fd);
		if (r < 0)
			return r;
		at += (size_t)n;
	}
	buf_drop(bytes, at);
	/* do not keep the memory of one large message for ever */
	if (bytes->n == 0 && bytes->cap > ROOM_KEPT)
		buf_free(bytes);
	return (int)MIN(n, 0);
}

/* Has something come that is not read yet, or the end? */
static bool
has_more(const struct conn *c)
{
	struct pollfd p = {c->rfd, POLLIN, 0};

	return !c->closed && poll(&p, 1, 0) > 0;
}

static void
on_event(void *arg, uint32_t events)
{
	struct conn *c = arg;
	struct err e = {0};
	bool was_busy = c->busy;
	int r = 1;

	c->busy = true;
	if (events & EPOLLOUT) {
		send_some(c);
		if (!c->closed)
			watch_out(c);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		r = frame_receive(&c->in_frames, c->rfd, c->is_socket, false);
		while (c->first && !c->closed && !c->first->busy && has_more(c->first))
			on_event(c->first, EPOLLIN);
		if (dispatch(c, &e) < 0)
			lost(c, &e);
		else if (r <= 0)
			lost(c, NULL);
	}
	c->busy = was_busy;
	if (c->doomed && !c->busy)
		destroy(c);
}

void
conn_take_all(struct conn *c)
{
	bool was_busy = c->busy;

	c->busy = true; /* it is not freed in on_event() */
	while (has_more(c))
		on_event(c, EPOLLIN);
	c->busy = was_busy;
	if (c->doomed && !c->busy)
		destroy(c);
}

void
conn_wait(struct conn *c, int ms)
{
	struct pollfd p = {c->rfd, POLLIN, 0};

	conn_flush(c);
	if (!c->closed && poll(&p, 1, ms) > 0)
		on_event(c, EPOLLIN);
}

struct conn *
conn_new(struct loop *l, int rfd, int wfd, conn_msg_fn *msg, conn_close_fn *close_fn, void *arg)
{
	struct conn *c = xcalloc(1, sizeof(*c));

	*c = (struct conn){
	    .loop = l, .rfd = rfd, .wfd = wfd, .msg = msg, .close = close_fn, .arg = arg};
	TAILQ_INIT(&c->fds_out);
	c->is_socket = rfd == wfd && frame_is_socket(rfd);
	fd_nonblock(rfd, true);
	fd_nonblock(wfd, true);
	fd_cloexec(rfd, true);
	fd_cloexec(wfd, true);
	c->in = loop_fd(l, rfd, EPOLLIN, on_event, c);
	return c;
}
