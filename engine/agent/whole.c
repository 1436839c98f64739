/*
 * Sends whole objects, for OPs: the relay reads their bytes from a pipe that comes with the Rget,
 * as its link has room. A pipe that ends early says that the request was answered otherwise.
 */
#include "agent/objects.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PIECE = 256 << 10 }; /* that is read at once, and that a pipe holds if it may */

struct whole {
	LIST_ENTRY(whole) link;
	struct object *object;
	uint64_t tag; /* of the Tget */
	uint64_t got; /* bytes that have been read */
	bool reading;
	struct buf frame;  /* an Rread */
	struct slice left; /* what of its bytes is not written yet */
	int fd;
	struct watch *watch;
};

static LIST_HEAD(, whole) wholes = LIST_HEAD_INITIALIZER(wholes);

static void
drop(struct whole *w)
{
	LIST_REMOVE(w, link);
	loop_fd_del(w->watch);
	close(w->fd);
	object_free(w->object);
	buf_free(&w->frame);
	free(w);
}

/* The rank need not keep the object: its bytes are no longer wanted, or cannot be read. e: the
 * answer; NULL: somebody else answers. */
static void
give_up(struct whole *w, const struct err *e)
{
	const struct engine *from = object_engine(w->object);

	object_unpin(from, object_handle(w->object));
	if (e)
		agent_refuse(from->slot, w->tag, e);
	drop(w);
}

static void read_more(struct whole *w);

static void
write_some(struct whole *w)
{
	ssize_t n = 0;

	while (w->left.n && n >= 0) {
		n = write(w->fd, w->left.p, w->left.n);
		w->left.p += MAX(n, 0);
		w->left.n -= (size_t)MAX(n, 0);
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		give_up(w, NULL); /* the relay has closed it */
		return;
	}
	loop_fd_events(w->watch, w->left.n ? EPOLLOUT : 0);
	if (!w->left.n)
		read_more(w);
}

static void
on_read(void *arg, struct buf *frame, const struct err *e)
{
	struct whole *w = arg;
	struct msg m;

	w->reading = false;
	if (e) {
		give_up(w, e);
		return;
	}
	buf_free(&w->frame);
	w->frame = *frame;
	*frame = (struct buf){0};
	if (wire_frame(w->frame.p, w->frame.n, &m, NULL) <= 0 ||
	    wire_unpack(&m, Rread, NULL, &w->left) < 0 || !w->left.n ||
	    w->left.n > object_size(w->object) - w->got) {
		give_up(w, &(struct err){EBADMSG, "a rank gave other bytes than its object has"});
		return;
	}
	w->got += w->left.n;
	write_some(w);
}

static void
read_more(struct whole *w)
{
	uint64_t n = MIN(object_size(w->object) - w->got, (uint64_t)PIECE);

	if (w->reading)
		return;
	if (!n) {
		drop(w);
		return;
	}
	w->reading = true;
	object_read(w->object, w->tag, w->got, (size_t)n, on_read, w);
}

static void
on_event(void *arg, uint32_t events)
{
	struct whole *w = arg;

	if (events & (EPOLLHUP | EPOLLERR))
		give_up(w, NULL);
	else
		write_some(w);
}

void
whole_begin(struct object *o, const struct msg *m)
{
	const struct engine *e = object_engine(o);
	struct whole *w;
	struct slice head;
	uint64_t size;
	struct err err;
	int ends[2];

	wire_unpack(m, Rget, NULL, NULL, NULL, NULL, &size, &head);
	if (fault("whole.pipe", EMFILE) || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
		fail_errno(&err, "a pipe for an object");
		object_unpin(e, object_handle(o));
		agent_refuse(e->slot, m->tag, &err);
		object_free(o);
		return;
	}
	if (fcntl(ends[1], F_SETPIPE_SZ, PIECE) < 0)
		debug("agent", "a pipe stays small: %s", strerror(errno));
	w = xcalloc(1, sizeof(*w));
	*w = (struct whole){.object = o, .tag = m->tag, .fd = ends[1]};
	w->watch = loop_fd(agent.loop, w->fd, 0, on_event, w);
	LIST_INSERT_HEAD(&wholes, w, link);
	conn_send(agent.up, Rget, 0, e->slot, m->tag, ends[0], (uint32_t)GET_FD, object_handle(o),
	    (uint64_t)0, size, head);
	close(ends[0]);
	read_more(w);
}

bool
whole_cancel(const struct engine *e, uint64_t tag)
{
	struct whole *w;
	struct err err;

	LIST_FOREACH (w, &wholes, link)
		if (object_engine(w->object) == e && w->tag == tag)
			break;
	if (!w)
		return false;
	object_cancelled(&err);
	give_up(w, &err);
	return true;
}

void
whole_ended(const struct engine *e)
{
	struct whole *w, *next;

	for (w = LIST_FIRST(&wholes); w; w = next) {
		next = LIST_NEXT(w, link);
		if (object_engine(w->object) == e)
			drop(w);
	}
}
