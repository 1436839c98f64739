/* Reads from sockets as the line has room, and writes to them as they have. */
#include "line/lanes.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	QUEUED_MAX = 8 << 20,  /* bytes that wait here for the other end of a socket */
	SOCKET_ROOM = 1 << 20, /* in it: with less, the processes at its ends take turns */
	READS_MAX = 64,	       /* of the first lane, in a row */
	WRITTEN_KEPT = 4 << 20 /* bytes of a queue that were written, and are in it */
};

struct lane {
	struct lanes *of;
	int fd;
	struct watch *watch; /* NULL: the other end is closed */
	bool dry;	     /* it is watched for bytes: there are none */
	struct buf out;
	size_t written; /* bytes of out */
};

struct lanes {
	struct line *line;
	void (*ended)(void);
	unsigned turn;
	struct lane lane[LINE_LANES];
	char control[LINE_PIECE];
};

/* What is queued for another lane waits for the first. */
static void
watch(struct lane *x)
{
	const struct lane *first = &x->of->lane[0];
	bool writes = x->written < x->out.n && (x == first || !first->out.n);

	if (x->watch)
		loop_fd_events(x->watch, (x->dry ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0));
}

/* ---- from the sockets ---- */

/* Sends what there is in the first lane. Returns false at its end. */
static bool
send_first(struct lanes *ls)
{
	ssize_t n = 1;

	for (int i = 0; n > 0 && i < READS_MAX; i++) {
		n = read(ls->lane[0].fd, ls->control, sizeof(ls->control));
		if (n > 0)
			line_send(ls->line, LINE_LANE, false, (struct slice){0},
			    (struct slice){ls->control, (size_t)n});
	}
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool
send_piece(struct lanes *ls, int lane)
{
	struct lane *x = &ls->lane[lane];
	struct packet *p = x->dry ? NULL : line_read(LINE_LANE + lane, x->fd, line_piece(ls->line));

	if (p) {
		send_first(ls); /* it came earlier */
		line_add(ls->line, p);
		return true;
	}
	if (!x->dry) {
		x->dry = true;
		watch(x);
	}
	return false;
}

bool
lanes_more(struct lanes *ls)
{
	for (int i = 1; i < LINE_LANES; i++)
		if (send_piece(ls, 1 + (int)(ls->turn++ % (LINE_LANES - 1))))
			return true;
	return false;
}

/* ---- to the sockets ---- */

/* Returns false if some of it remains. */
static bool
flush(struct lane *x)
{
	while (x->written < x->out.n) {
		ssize_t n = write(x->fd, x->out.p + x->written, x->out.n - x->written);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			watch(x);
			return false;
		}
		x->written = n < 0 ? x->out.n : x->written + (size_t)n; /* it has been closed */
	}
	x->written = 0;
	buf_clear(&x->out);
	watch(x);
	return true;
}

/* What has come by the first lane is there before what came later by the others. */
static void
flush_all(struct lanes *ls)
{
	size_t queued = 0;
	bool free = flush(&ls->lane[0]);

	for (int i = 1; i < LINE_LANES; i++)
		if (free)
			flush(&ls->lane[i]);
		else
			watch(&ls->lane[i]);
	for (int i = 0; i < LINE_LANES; i++)
		queued += ls->lane[i].out.n - ls->lane[i].written;
	line_hold(ls->line, queued > QUEUED_MAX);
}

void
lanes_take(struct lanes *ls, int lane, struct slice bytes)
{
	struct lane *x = &ls->lane[lane];
	ssize_t n = 0;

	if (!x->out.n && !ls->lane[0].out.n)
		n = write(x->fd, bytes.p, bytes.n);
	n = MAX(n, 0);
	if ((size_t)n == bytes.n)
		return;
	if (x->written > WRITTEN_KEPT) {
		buf_drop(&x->out, x->written);
		x->written = 0;
	}
	buf_add(&x->out, bytes.p + n, bytes.n - (size_t)n);
	flush_all(ls);
}

void
lanes_flush(struct lanes *ls)
{
	for (int i = 0; i < LINE_LANES; i++) {
		fd_nonblock(ls->lane[i].fd, false);
		flush(&ls->lane[i]);
	}
}

static void
on_event(void *arg, uint32_t events)
{
	struct lane *x = arg;
	struct lanes *ls = x->of;
	bool closed = events & (EPOLLHUP | EPOLLERR);

	if (closed && x != &ls->lane[0]) {
		loop_fd_del(x->watch);
		x->watch = NULL;
	}
	if (events & EPOLLOUT)
		flush_all(ls);
	if (!(events & EPOLLIN) && !closed)
		return;
	if (x != &ls->lane[0]) {
		x->dry = false;
		watch(x);
		line_more(ls->line);
	} else if (!send_first(ls)) {
		loop_fd_del(x->watch);
		x->watch = NULL;
		ls->ended();
	}
}

struct lanes *
lanes_new(struct loop *loop, struct line *l, const int fds[LINE_LANES], void (*ended)(void))
{
	struct lanes *ls = xcalloc(1, sizeof(*ls));

	ls->line = l;
	ls->ended = ended;
	for (int i = 0; i < LINE_LANES; i++) {
		ls->lane[i] = (struct lane){.of = ls, .fd = fds[i], .dry = true};
		fd_nonblock(fds[i], true);
		if (i > 0)
			setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_ROOM}, sizeof(int));
		ls->lane[i].watch = loop_fd(loop, fds[i], EPOLLIN, on_event, &ls->lane[i]);
	}
	return ls;
}

void
lanes_free(struct lanes *ls)
{
	for (int i = 0; ls && i < LINE_LANES; i++) {
		loop_fd_del(ls->lane[i].watch);
		close(ls->lane[i].fd);
		buf_free(&ls->lane[i].out);
	}
	free(ls);
}
