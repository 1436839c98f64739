/* Passes pieces of the agent's replies on, and brings them together. */
#include "relay/bulk.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct bulk {
	struct link *link;
	int fd;
	struct watch *watch; /* for bytes, while there are none; NULL: none will come */
	bool dry;
	size_t left; /* bytes of the frame that is being passed on */
	char piece[LINK_PIECE];
};

static void
on_bytes(void *arg, uint32_t events)
{
	struct bulk *bulk = arg;

	bulk->dry = false;
	if (events & (EPOLLHUP | EPOLLERR)) {
		loop_fd_del(bulk->watch);
		bulk->watch = NULL;
	} else {
		loop_fd_events(bulk->watch, 0);
	}
	link_more(bulk->link);
}

struct bulk *
bulk_new(struct loop *loop, struct link *l, int fd)
{
	struct bulk *bulk = xcalloc(1, sizeof(*bulk));

	bulk->link = l;
	bulk->fd = fd;
	bulk->dry = true;
	fd_nonblock(fd, true);
	bulk->watch = loop_fd(loop, fd, EPOLLIN, on_bytes, bulk);
	return bulk;
}

/* Reads a piece of one frame: its end does not wait for the beginning of the next. Returns the
 * number of bytes, or 0 or less if there are none. */
static ssize_t
read_piece(struct bulk *bulk)
{
	char size[4];
	const char *p = size;
	size_t n = sizeof(size);
	uint64_t v;

	if (bulk->left == 0) {
		if (recv(bulk->fd, size, n, MSG_PEEK) < (ssize_t)n)
			return 0;
		wire_get('4', &p, &n, &v, NULL);
		bulk->left = MAX((size_t)v, sizeof(size));
	}
	return read(bulk->fd, bulk->piece, MIN(bulk->left, link_piece(bulk->link)));
}

bool
bulk_more(struct bulk *bulk)
{
	ssize_t n;

	if (bulk->dry)
		return false;
	n = read_piece(bulk);
	if (n > 0) {
		bulk->left -= (size_t)n;
		link_send(bulk->link, PACKET_BULK, true, (struct slice){0},
		    (struct slice){bulk->piece, (size_t)n});
		return true;
	}
	bulk->dry = true;
	if (bulk->watch)
		loop_fd_events(bulk->watch, EPOLLIN);
	return false;
}

int
bulk_take(struct buf *rest, struct slice bytes, void (*whole)(const struct msg *m), struct err *e)
{
	size_t at = 0;
	struct msg m;
	long n;

	buf_add(rest, bytes.p, bytes.n);
	while ((n = wire_frame(rest->p + at, rest->n - at, &m, e)) > 0) {
		if (m.flags & FLAG_FD)
			return fail(e, EBADMSG, "relay: a frame in pieces wants a descriptor");
		whole(&m);
		at += (size_t)n;
	}
	buf_drop(rest, at);
	return (int)MIN(n, 0);
}
