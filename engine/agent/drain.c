/*
 * Moves what engines print to the spools: from the shared ring (Python's own prints) and from three
 * pipes (C code and child processes). The ring is always read before the pipes: a rank writes to
 * the ring only while its pipes are empty, so bytes in a pipe are newer.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PIPE_SIZE = 1 << 20 };

static void ring_watch(void *arg);

/* The position where the run of bytes of one kind at e->output.head ends, at most tail. Consumes
 * the switches that have been reached. */
static uint64_t
same_kind_until(struct engine *e, uint64_t tail)
{
	struct output_ring *p = e->output.ring;
	uint32_t last = atomic_load_explicit(&p->switch_tail, memory_order_acquire);

	while (e->output.switch_head != last && last - e->output.switch_head <= RING_SWITCHES) {
		struct ring_switch *s = &p->switches[e->output.switch_head % RING_SWITCHES];
		uint64_t at = atomic_load_explicit(&s->position, memory_order_relaxed);

		if (at > e->output.head)
			return MIN(at, tail);
		e->output.kind_now =
		    atomic_load_explicit(&s->kind, memory_order_relaxed) % RING_KINDS;
		e->output.switch_head++;
	}
	return tail;
}

/* Moves the contents of the ring to the spool. Returns true if there were any. */
static bool
take_ring(struct engine *e)
{
	struct output_ring *p = e->output.ring;
	uint64_t tail, head = e->output.head;

	if (!p)
		return false;
	tail = atomic_load_explicit(&p->tail, memory_order_acquire);
	if (tail - head > RING_SIZE) {
		note("%s: its output buffer was overwritten; %s", e->name,
		    "prints since the last look are lost");
		e->output.head = tail;
	}
	while (e->output.head != tail) {
		uint64_t end = same_kind_until(e, tail);
		size_t at = e->output.head % RING_SIZE;
		size_t n = MIN((size_t)(end - e->output.head), (size_t)RING_SIZE - at);

		spool_writer_add(&e->output.spool, (int)e->output.kind_now, p->ring + at, n);
		e->output.head += n;
	}
	atomic_store_explicit(&p->switch_head, e->output.switch_head, memory_order_release);
	atomic_store_explicit(&p->head, e->output.head, memory_order_release);
	return e->output.head != head;
}

/* Wakes those who wait for free space or for empty pipes. */
static void
wake(struct engine *e)
{
	struct output_ring *p = e->output.ring;

	if (!p)
		return;
	atomic_fetch_add(&p->epoch, 1);
	if (atomic_exchange(&p->waiting, 0))
		syscall(SYS_futex, &p->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
drain_pass(struct engine *e, const struct msg *m, const struct spool_mark *at)
{
	if (e->output.away)
		away_say(e->output.away, m, at);
	else
		conn_forward(agent.up, m);
}

void
drain_say(struct engine *e, const struct spool_mark *at, int type, ...)
{
	struct buf frame = {0};
	struct msg m;
	va_list ap;

	va_start(ap, type);
	wire_vpack(&frame, type, FLAG_ORDERED, e->slot, 0, ap);
	va_end(ap);
	wire_frame(frame.p, frame.n, &m, NULL);
	drain_pass(e, &m, at);
	buf_free(&frame);
}

/* Something may be new in the spool, or did not fit into it. */
static void
tell(struct engine *e)
{
	uint64_t more = e->output.spool.dropped - e->output.told_dropped;

	away_news(e->output.away);
	if (!more)
		return;
	e->output.told_dropped = e->output.spool.dropped;
	drain_say(e, NULL, Ndropped, more, (unsigned)DROPPED_NO_ROOM);
}

static void
close_outlet(struct outlet *o)
{
	loop_fd_del(o->watch);
	o->watch = NULL;
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
}

static void
take_outlet(struct outlet *o)
{
	int stream = (int)(o - o->e->output.outlet);
	bool eof;

	if (o->fd < 0)
		return;
	spool_writer_move(&o->e->output.spool, stream, o->fd, &eof);
	atomic_fetch_add(&o->e->output.ring->drained[stream], 1);
	if (eof)
		close_outlet(o);
}

/* Moves the contents of the pipes. They are usually empty, which a single poll(2) shows. */
static void
take_outlets(struct engine *e)
{
	struct pollfd pipes[SPOOL_STREAMS];

	for (int i = 0; i < SPOOL_STREAMS; i++)
		pipes[i] = (struct pollfd){e->output.outlet[i].fd, POLLIN, 0};
	if (poll(pipes, SPOOL_STREAMS, 0) < 0)
		memset(pipes, 0xff, sizeof(pipes)); /* unknown: look at each pipe */
	for (int i = 0; i < SPOOL_STREAMS; i++) {
		if (pipes[i].revents)
			take_outlet(&e->output.outlet[i]);
		else if (pipes[i].fd >= 0)
			atomic_fetch_add(&e->output.ring->drained[i], 1);
	}
}

struct spool_mark
drain_mark(struct engine *e)
{
	if (!e->output.spooled)
		return (struct spool_mark){0};
	take_ring(e);
	take_outlets(e);
	wake(e);
	tell(e);
	return spool_writer_cut(&e->output.spool);
}

static void
on_outlet(void *arg, uint32_t events)
{
	struct outlet *o = arg;

	take_ring(o->e);
	take_outlet(o);
	wake(o->e);
	tell(o->e);
}

/* While bytes keep arriving we poll by timer: a rank that prints a lot then never makes a system
 * call. */
static void
ring_watch(void *arg)
{
	struct engine *e = arg;
	bool more = take_ring(e);

	e->output.look = NULL;
	if (!more) {
		atomic_store(&e->output.ring->watching, 0);
		/* It may have written after our look and before it saw that we stopped. */
		more = atomic_load(&e->output.ring->tail) != e->output.head;
		if (more)
			atomic_store(&e->output.ring->watching, 1);
	}
	wake(e);
	tell(e);
	if (more)
		e->output.look = loop_timer(agent.loop, RING_POLL_MS, ring_watch, e);
}

static void
on_wakeup(void *arg, uint32_t events)
{
	struct engine *e = arg;
	uint64_t count;

	if (read(e->output.wakeup_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		note("%s: its wakeup_fd: %s", e->name, strerror(errno));
	atomic_store(&e->output.ring->watching, 1);
	atomic_store(&e->output.ring->urgent, 0);
	loop_timer_del(e->output.look);
	ring_watch(e);
}

static int
open_ring(struct engine *e, struct err *err)
{
	int fd = fault("ring.memfd", ENOMEM)
		     ? -1
		     : memfd_create("ddip-output", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	e->given[ENGINE_FD_RING] = fd;
	/* The rank has the descriptor too: if it truncated the file, SIGBUS would kill us. */
	if (fd < 0 || ftruncate(fd, sizeof(struct output_ring)) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return fail_errno(err, "output ring of %s", e->name);
	p = fault("ring.map", ENOMEM)
		? MAP_FAILED
		: mmap(NULL, sizeof(struct output_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail_errno(err, "output ring of %s", e->name);
	e->output.ring = p;
	e->output.wakeup_fd =
	    fault("ring.wakeup", EMFILE) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->output.wakeup_fd >= 0)
		e->given[ENGINE_FD_WAKEUP] = fcntl(e->output.wakeup_fd, F_DUPFD_CLOEXEC, 3);
	if (e->given[ENGINE_FD_WAKEUP] < 0)
		return fail_errno(err, "output wakeup_fd of %s", e->name);
	e->output.wakeup_watch = loop_fd(agent.loop, e->output.wakeup_fd, EPOLLIN, on_wakeup, e);
	return 0;
}

int
drain_open(struct engine *e, struct err *err)
{
	int r;

	if (agent.away && !(e->output.away = away_open(e, err)))
		return -err->no;
	r = spool_writer_open(&e->output.spool, e->dir, e->name, err);
	if (r < 0)
		return r;
	e->output.spooled = true;
	e->output.err_start = e->output.spool.at.size[SPOOL_STDERR];
	for (int i = 0; i < SPOOL_STREAMS; i++) {
		struct outlet *o = &e->output.outlet[i];
		int fds[2];

		if (fault("engine.pipe", EMFILE) || pipe2(fds, O_CLOEXEC) < 0)
			return fail_errno(err, "output pipe of %s", e->name);
		o->fd = fds[0];
		e->given[ENGINE_FD_OUT + i] = fds[1];
		/* Users with many pipes get less, which is only slower. */
		fcntl(fds[1], F_SETPIPE_SZ, PIPE_SIZE);
		fd_nonblock(o->fd, true);
		o->watch = loop_fd(agent.loop, o->fd, EPOLLIN, on_outlet, o);
	}
	return open_ring(e, err);
}

void
drain_close(struct engine *e)
{
	loop_timer_del(e->output.look);
	loop_fd_del(e->output.wakeup_watch);
	if (e->output.wakeup_fd >= 0)
		close(e->output.wakeup_fd);
	for (int i = 0; i < SPOOL_STREAMS; i++)
		close_outlet(&e->output.outlet[i]);
	if (e->output.ring)
		munmap(e->output.ring, sizeof(*e->output.ring));
	if (e->output.spooled)
		spool_writer_close(&e->output.spool);
	away_drop(e->output.away);
	e->output.away = NULL;
	e->output.ring = NULL;
	e->output.spooled = false;
}
