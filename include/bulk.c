/* Sends frames as a socket takes them. */
#include "bulk.h"
#include "frame.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

/* What waits in the socket delays what comes after it: a frame should be taken in about this time.
 */
enum { FAST_MS = 2, SLOW_MS = 10, LEAST = 8 << 10 };

enum { AT_ONCE = 16 }; /* frames, before something else has its turn: a fast reader takes all */

enum { CONTROL_MS = 1 }; /* between two looks whether all of control is sent */

struct bulk {
	struct loop *loop;
	int fd;
	struct conn *control;
	struct timer *look;  /* at control */
	struct watch *watch; /* NULL: its reader is gone */
	bulk_fn *next;
	void *arg;
	struct buf frame; /* that is being sent */
	size_t sent;

	struct {
		int fd;
		off_t offset;
		size_t n;
	} rest; /* of the frame */

	size_t piece, most;  /* bytes that a frame should have; 0: it has no limit */
	uint64_t begun;	     /* when the last frame was */
	bool waited;	     /* for room, since then */
	bool sending, waits; /* waits: for room */
};

static void
set_piece(struct bulk *b, size_t n)
{
	const int size = 2 * (int)n;

	b->piece = n;
	if (setsockopt(b->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0)
		note("a socket's buffer: %s", strerror(errno));
}

/* If the last frame had to wait, it shows how fast the reader takes them. */
static void
adapt(struct bulk *b)
{
	uint64_t now = now_ns(), took = now - b->begun;

	if (b->piece && b->waited && took < FAST_MS * NS_PER_MS && b->piece < b->most)
		set_piece(b, MIN(b->piece * 2, b->most));
	if (b->piece && b->waited && took > SLOW_MS * NS_PER_MS && b->piece > LEAST)
		set_piece(b, MAX(b->piece / 2, (size_t)LEAST));
	b->begun = now;
	b->waited = false;
}

static void
on_look(void *arg)
{
	struct bulk *b = arg;

	b->look = NULL;
	bulk_ready(b);
}

static void
next_frame(struct bulk *b)
{
	adapt(b);
	buf_clear(&b->frame);
	b->sent = 0;
	if (b->control && conn_waits(b->control)) {
		if (!b->look)
			b->look = loop_timer(b->loop, CONTROL_MS, on_look, b);
		return;
	}
	if (b->next(b->arg, &b->frame))
		frame_show_all(b->frame.p, b->frame.n);
}

void
bulk_add_rest(struct bulk *b, int fd, uint64_t offset, size_t n)
{
	b->rest.fd = fd;
	b->rest.offset = (off_t)offset;
	b->rest.n = n;
}

/* If the file has become shorter, zeros are sent: whoever truncated it harmed only itself. */
static ssize_t
send_rest(struct bulk *b)
{
	static const char zeros[4096];
	ssize_t n = sendfile(b->fd, b->rest.fd, &b->rest.offset, b->rest.n);

	if (n == 0)
		n = send(b->fd, zeros, MIN(b->rest.n, sizeof(zeros)), MSG_DONTWAIT | MSG_NOSIGNAL);
	b->rest.n -= n > 0 ? (size_t)n : 0;
	return n;
}

/* Sends until it would block, or has sent so many frames. */
static void
send_some(struct bulk *b)
{
	int frames = 0;
	ssize_t n = 0;

	b->sending = true;
	while (n >= 0 && frames < AT_ONCE) {
		if (b->sent == b->frame.n && !b->rest.n) {
			next_frame(b);
			frames++;
		}
		if (!b->frame.n)
			break;
		if (b->sent == b->frame.n) {
			n = send_rest(b);
			continue;
		}
		n = send(b->fd, b->frame.p + b->sent, b->frame.n - b->sent,
		    MSG_DONTWAIT | MSG_NOSIGNAL | (b->rest.n ? MSG_MORE : 0));
		b->sent += n > 0 ? (size_t)n : 0;
	}
	b->sending = false;
	if (b->waits != (b->frame.n > 0))
		loop_fd_events(b->watch, b->frame.n ? EPOLLOUT : 0);
	b->waits = b->frame.n;
	b->waited |= b->waits;
}

static void
on_event(void *arg, uint32_t events)
{
	struct bulk *b = arg;

	if (events & EPOLLOUT && !(events & (EPOLLHUP | EPOLLERR))) {
		send_some(b);
		return;
	}
	/* the reader is gone: somebody else learns that, too */
	loop_fd_del(b->watch);
	b->watch = NULL;
}

struct bulk *
bulk_new(struct loop *l, int fd, struct conn *control, size_t most, bulk_fn *next, void *arg)
{
	struct bulk *b = xcalloc(1, sizeof(*b));

	*b = (struct bulk){
	    .loop = l, .fd = fd, .control = control, .most = most, .next = next, .arg = arg};
	if (most)
		set_piece(b, LEAST);
	b->watch = loop_fd(l, fd, 0, on_event, b);
	return b;
}

void
bulk_free(struct bulk *b)
{
	if (!b)
		return;
	loop_fd_del(b->watch);
	loop_timer_del(b->look);
	close(b->fd);
	buf_free(&b->frame);
	free(b);
}

size_t
bulk_piece(const struct bulk *b)
{
	return b->piece;
}

void
bulk_ready(struct bulk *b)
{
	if (b->watch && !b->sending && !b->frame.n)
		send_some(b);
}
