/*
 * The rank's side of the ring. A loop of prints makes no system call: it copies the text and
 * publishes the new tail, and the agent polls every few milliseconds while there is output. The
 * first writes after each poll also make sure that the agent first reads what C code or a child
 * process wrote to a pipe earlier.
 */
#define _GNU_SOURCE
#include "rank/output.h"
#include "output_ring.h"
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CAREFUL = 64, LINE_MAX_BYTES = 8192 };

static const uint64_t PATIENCE = 1000000000; /* ns: limit of a wait for empty pipes */

static struct {
	struct output_ring *ring; /* NULL: write directly */
	int wakeup_fd;
	uint32_t kind;		/* of the last byte in the ring */
	uint32_t epoch, writes; /* writes since the agent's last poll */
	dev_t dev[2];		/* of descriptors 1 and 2 at the start */
	ino_t ino[2];
	bool waits; /* waiting for empty pipes */
	uint64_t since;
	uint32_t drained[2]; /* the ring's values when the wait began */
	uint32_t seen;	     /* the epoch to sleep on */
} own;

int
out_open(int ring_fd, int wakeup_fd)
{
	void *p =
	    mmap(NULL, sizeof(struct output_ring), PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, 0);
	struct stat st;

	if (p == MAP_FAILED)
		return -errno;
	for (int i = 0; i < 2; i++) {
		if (fstat(i + 1, &st) < 0)
			return -errno;
		own.dev[i] = st.st_dev;
		own.ino[i] = st.st_ino;
	}
	own.wakeup_fd = wakeup_fd;
	own.ring = p;
	return 0;
}

void
out_leave(void)
{
	own.ring = NULL;
}

/* Is descriptor 1 (i = 0) or 2 still the original file? */
static bool
is_ours(int i)
{
	struct stat st;

	return fstat(i + 1, &st) == 0 && st.st_dev == own.dev[i] && st.st_ino == own.ino[i];
}

/* Has the agent read everything that was in the pipes? */
static bool
pipes_taken(void)
{
	bool clear = true;
	uint32_t drained[2];

	for (int i = 0; i < 2; i++) {
		int left = 0;

		drained[i] = atomic_load(&own.ring->drained[i]);
		/* the first poll to end may have begun before these bytes arrived */
		if (own.waits && drained[i] - own.drained[i] > 1)
			continue;
		if (is_ours(i) && ioctl(i + 1, FIONREAD, &left) == 0 && left > 0)
			clear = false;
	}
	if (clear) {
		own.waits = false;
	} else if (!own.waits) {
		own.waits = true;
		own.since = now_ns();
		memcpy(own.drained, drained, sizeof(drained));
	} else if (now_ns() - own.since > PATIENCE) {
		own.waits = false;
		clear = true; /* better out of order than not at all */
	}
	return clear;
}

/* Marks the bytes from tail on as this kind. Returns false if there is no room for the switch. */
static bool
switch_kind(struct output_ring *p, uint32_t kind, uint64_t tail)
{
	uint32_t at = atomic_load_explicit(&p->switch_tail, memory_order_relaxed);
	struct ring_switch *s = &p->switches[at % RING_SWITCHES];

	if (at - atomic_load_explicit(&p->switch_head, memory_order_acquire) >= RING_SWITCHES)
		return false;
	atomic_store_explicit(&s->position, tail, memory_order_relaxed);
	atomic_store_explicit(&s->kind, kind, memory_order_relaxed);
	atomic_store_explicit(&p->switch_tail, at + 1, memory_order_release);
	own.kind = kind;
	return true;
}

static void
ring(void)
{
	uint64_t one = 1;

	/* It can fail only by overflow, and then the agent has been woken often enough. */
	if (write(own.wakeup_fd, &one, sizeof(one)) < 0)
		debug("out", "wakeup_fd: %s", strerror(errno));
}

void
out_flush(void)
{
	struct output_ring *p = own.ring;

	if (!p || atomic_load_explicit(&p->head, memory_order_relaxed) ==
		      atomic_load_explicit(&p->tail, memory_order_relaxed))
		return;
	/* We store tail before we load watching, and the agent stores watching before it loads
	 * tail: at least one side sees the other's store. */
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&p->watching, memory_order_relaxed)) {
		atomic_store(&p->watching, 1);
		ring();
	}
}

/* Makes the agent poll now. */
static void
press(struct output_ring *p)
{
	if (!atomic_exchange(&p->urgent, 1))
		ring();
}

static ssize_t
must_wait(struct output_ring *p, uint32_t seen)
{
	own.seen = seen;
	press(p);
	return 0;
}

ssize_t
out_put(const struct out *o, const char *text, size_t n)
{
	struct output_ring *p = own.ring;
	uint32_t epoch;
	uint64_t tail, used;
	size_t at, first;

	if (!p)
		return -1;
	epoch = atomic_load_explicit(&p->epoch, memory_order_acquire);
	if (epoch != own.epoch) {
		own.epoch = epoch;
		own.writes = 0;
	}
	if (own.writes++ < CAREFUL) {
		if (o->kind < 2 && !is_ours(o->kind))
			return -1;
		if (!pipes_taken())
			return must_wait(p, epoch);
	}
	tail = atomic_load_explicit(&p->tail, memory_order_relaxed);
	used = tail - atomic_load_explicit(&p->head, memory_order_acquire);
	if (used >= RING_SIZE ||
	    ((uint32_t)o->kind != own.kind && !switch_kind(p, (uint32_t)o->kind, tail)))
		return must_wait(p, epoch);
	n = MIN(n, (size_t)(RING_SIZE - used));
	at = tail % RING_SIZE;
	first = MIN(n, RING_SIZE - at);
	memcpy(p->ring + at, text, first);
	memcpy(p->ring, text + first, n - first);
	atomic_store_explicit(&p->tail, tail + n, memory_order_release);
	if (used + n > RING_SIZE / 2)
		press(p);
	if (memchr(text, '\n', n))
		out_flush();
	return (ssize_t)n;
}

void
out_wait(void)
{
	struct output_ring *p = own.ring;
	const struct timespec limit = {.tv_nsec = 100000000};

	if (!p)
		return;
	atomic_store(&p->waiting, 1);
	syscall(SYS_futex, &p->epoch, FUTEX_WAIT, own.seen, &limit, NULL, 0);
}

void
out_direct(struct out *o, const char *p, size_t n, bool all, struct buf *now)
{
	buf_add(&o->line, p, n);
	if (!all && o->line.n < LINE_MAX_BYTES && !memchr(p, '\n', n))
		return;
	*now = o->line;
	o->line = (struct buf){0};
}
