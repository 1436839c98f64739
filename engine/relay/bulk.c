/* Passes pieces of the agent's frames on, and brings them together. */
#include "relay/bulk.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct bulk {
	struct link *link;
	int type; /* of the packets */
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
bulk_new(struct loop *loop, struct link *l, int type, int fd)
{
	struct bulk *bulk = xcalloc(1, sizeof(*bulk));

	bulk->link = l;
	bulk->type = type;
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
		link_send(bulk->link, bulk->type, true, (struct slice){0},
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
	const bool begun = rest->n > 0;
	struct msg m;
	long n;

	if (begun) {
		buf_add(rest, bytes.p, bytes.n);
		bytes = (struct slice){rest->p, rest->n};
	}
	while ((n = wire_frame(bytes.p, bytes.n, &m, e)) > 0) {
		if (m.flags & FLAG_FD)
			return fail(e, EBADMSG, "relay: a frame in pieces wants a descriptor");
		whole(&m);
		bytes.p += n;
		bytes.n -= (size_t)n;
	}
	if (begun)
		buf_drop(rest, rest->n - bytes.n);
	else
		buf_add(rest, bytes.p, bytes.n);
	return (int)MIN(n, 0);
}
