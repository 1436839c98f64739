/* Packets on one pair of byte streams. */
#include "line/carrier.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	PACKET_SIZE_MAX = 1 << 20,
	READ_SIZE = 256 << 10, /* bytes per read(2) */
	ROOM_KEPT = 1 << 20    /* bytes of the buffer kept when it is empty */
};

void
carrier_close(struct carrier *c)
{
	loop_fd_del(c->in);
	loop_fd_del(c->out);
	c->in = c->out = NULL;
	if (c->rfd >= 0)
		close(c->rfd);
	if (c->wfd >= 0)
		close(c->wfd);
	c->rfd = c->wfd = -1;
	c->between_done = 0;
	buf_free(&c->between);
	buf_free(&c->got);
}

/* The streams are no longer usable. */
static void
end(struct carrier *c, const struct err *why)
{
	if (c->rfd < 0)
		return;
	carrier_close(c);
	c->ops->ended(c, why);
}

/* ---- sending ---- */

void
carrier_header(char *p, size_t size, int type)
{
	for (int i = 0; i < 4; i++)
		p[i] = (char)(size >> (8 * i));
	p[4] = (char)type;
}

void
carrier_word(struct carrier *c, int type, uint64_t v)
{
	char header[CARRIER_HEADER];

	carrier_header(header, CARRIER_HEADER + sizeof(v), type);
	buf_add(&c->between, header, CARRIER_HEADER);
	for (size_t i = 0; i < sizeof(v); i++)
		buf_addc(&c->between, (char)(v >> (CHAR_BIT * i)));
}

void
carrier_finish(struct carrier *c, const char *p, size_t n)
{
	buf_clear(&c->between); /* none of them is partly written: a packet was in progress */
	buf_add(&c->between, p, n);
}

static void
on_writable(void *arg, uint32_t events)
{
	struct carrier *c = arg;

	c->ops->room(c);
}

bool
carrier_write(struct carrier *c, const char *p, size_t n, size_t *done)
{
	while (*done < n) {
		ssize_t w = write(c->wfd, p + *done, n - *done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN && !c->out)
			c->out = loop_fd(c->loop, c->wfd, EPOLLOUT, on_writable, c);
		if (w < 0) {
			/* the reading side notices breakage, and gets the last words */
			if (errno != EAGAIN)
				carrier_rest(c);
			return false;
		}
		*done += (size_t)w;
	}
	return true;
}

bool
carrier_flush(struct carrier *c)
{
	if (!carrier_write(c, c->between.p, c->between.n, &c->between_done))
		return false;
	buf_clear(&c->between);
	c->between_done = 0;
	return true;
}

void
carrier_rest(struct carrier *c)
{
	loop_fd_del(c->out);
	c->out = NULL;
}

/* ---- receiving ---- */

static size_t
size_of(const char *header)
{
	const unsigned char *p = (const unsigned char *)header;

	return p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

/* Delivers the complete packets. */
static int
give_packets(struct carrier *c, struct err *e)
{
	unsigned opened = c->opened;
	size_t at = 0;

	while (c->got.n - at >= CARRIER_HEADER) {
		const char *p = c->got.p + at;
		size_t n = size_of(p);
		struct slice body = {p + CARRIER_HEADER, n - CARRIER_HEADER};
		int r;

		if (n < CARRIER_HEADER || n > PACKET_SIZE_MAX)
			return fail(e, EBADMSG,
			    "line: what came is no packet: something else writes to its stream");
		if (c->got.n - at < n)
			break;
		at += n;
		r = c->ops->packet(c, (unsigned char)p[CARRIER_HEADER - 1], body, e);
		if (c->rfd < 0 || c->opened != opened)
			return 0; /* closed in the meantime: the buffer is gone */
		if (r < 0)
			return r;
	}
	buf_drop(&c->got, at);
	if (c->got.n == 0 && c->got.cap > ROOM_KEPT)
		buf_free(&c->got);
	return 0;
}

/* Bytes have arrived. */
static void
took(struct carrier *c)
{
	unsigned opened = c->opened;
	struct err e = {0};

	c->last_word = now_ns();
	if (give_packets(c, &e) < 0)
		end(c, &e);
	else if (c->rfd >= 0 && c->opened == opened)
		c->ops->taken(c);
}

static void
on_readable(void *arg, uint32_t events)
{
	struct carrier *c = arg;
	struct err e = {0};
	ssize_t n = read(c->rfd, buf_reserve(&c->got, READ_SIZE), READ_SIZE);

	if (n > 0) {
		c->got.n += (size_t)n;
		took(c);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		if (n < 0)
			fail_errno(&e, "line");
		end(c, &e);
	}
}

bool
carrier_open(struct carrier *c, int rfd, int wfd)
{
	/* the loop allows one watch per descriptor number */
	if (rfd == wfd)
		wfd = fcntl(rfd, F_DUPFD_CLOEXEC, 0);
	if (wfd < 0)
		return false;
	c->opened++;
	c->begun = false;
	c->rfd = rfd;
	c->wfd = wfd;
	fd_nonblock(c->rfd, true);
	fd_nonblock(c->wfd, true);
	c->in = loop_fd(c->loop, c->rfd, EPOLLIN, on_readable, c);
	return true;
}

void
carrier_early(struct carrier *c, struct slice bytes)
{
	buf_add(&c->got, bytes.p, bytes.n);
	took(c);
}
