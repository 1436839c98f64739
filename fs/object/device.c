/*
 * The memory of a rank is divided into slots. A slot is taken from the question to the rank until
 * the copy thread has sent the reply; reads for which there is none wait in line.
 */
#include "object/device.h"
#include "base/daemon.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct read {
	struct ring *ring;
	struct req *r; /* NULL: it was interrupted */
	uint32_t handle;
	struct slice head; /* what of it is asked for */
	uint64_t offset;   /* behind the head */
	size_t n;	   /* without the head */
	int place;
	TAILQ_ENTRY(read) link;
};

/* What a rank shares with us. */
struct ring {
	struct agent *agent;
	int slot; /* of the rank at the agent */
	char *memory;
	int refs; /* objects, and taken slots */

	struct place_in_ring {
		bool taken;
		_Atomic bool sent; /* by a copy thread */
	} places[DEVICE_SLOTS];

	TAILQ_HEAD(, read) waiting;
	LIST_ENTRY(ring) link;
};

struct device {
	struct ring *ring;
	uint32_t handle;
};

static const size_t RING_SIZE = (size_t)DEVICE_SLOT * DEVICE_SLOTS;

static LIST_HEAD(, ring) rings = LIST_HEAD_INITIALIZER(rings);
static int sent_fd = -1; /* copy threads say here that something was sent */
static struct watch *sent_watch;

static void
unref(struct ring *ring)
{
	if (--ring->refs > 0)
		return;
	LIST_REMOVE(ring, link);
	munmap(ring->memory, RING_SIZE);
	free(ring);
	if (LIST_EMPTY(&rings)) {
		loop_fd_del(sent_watch);
		close(sent_fd);
		sent_watch = NULL;
		sent_fd = -1;
	}
}

static void begin(struct read *x);

static void
free_place(struct ring *ring, int place)
{
	struct read *x = TAILQ_FIRST(&ring->waiting);

	ring->places[place].taken = false;
	if (x) {
		TAILQ_REMOVE(&ring->waiting, x, link);
		ring->places[place].taken = true;
		x->place = place;
		begin(x); /* who waits has a reference, too */
	}
	unref(ring);
}

static void
on_sent(void *arg, uint32_t events)
{
	struct ring *ring, *next;
	uint64_t count;

	(void)!read(sent_fd, &count, sizeof(count));
	for (ring = LIST_FIRST(&rings); ring; ring = next) {
		next = LIST_NEXT(ring, link);
		ring->refs++;
		for (int i = 0; i < DEVICE_SLOTS; i++)
			if (atomic_exchange(&ring->places[i].sent, false))
				free_place(ring, i);
		unref(ring);
	}
}

/* On the loop or on a copy thread, which has no other business here. */
static void
sent(void *arg)
{
	_Atomic bool *flag = arg;
	uint64_t one = 1;

	atomic_store(flag, true);
	(void)!write(sent_fd, &one, sizeof(one)); /* full: it was told often enough */
}

static void
answer(struct read *x, const struct err *e)
{
	struct ring *ring = x->ring;
	struct place_in_ring *place = &ring->places[x->place];
	struct source s = {.kind = SOURCE_MEMORY,
	    .fd = -1,
	    .head = ring->memory + (size_t)x->place * DEVICE_SLOT,
	    .head_n = x->head.n + x->n,
	    .sent = sent,
	    .sent_arg = &place->sent};

	if (!x->r || e->no) {
		free_place(ring, x->place);
		if (x->r) {
			x->r->err = *e;
			req_done(x->r, -e->no);
		}
	} else {
		req_copy(x->r, &s, 0, (size_t)s.head_n);
	}
	free(x);
}

static void
on_copied(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	static const struct err none;

	answer(arg, m ? &none : e);
}

/* x has a slot. */
static void
begin(struct read *x)
{
	struct ring *ring = x->ring;
	uint64_t to = (uint64_t)x->place * DEVICE_SLOT;
	struct err e = {0};
	uint32_t tag;

	memcpy(ring->memory + to, x->head.p, x->head.n);
	if (!x->r || x->n == 0) {
		answer(x, &e);
		return;
	}
	if (!agent_slot_lives(ring->agent, ring->slot)) {
		fail(&e, EHOSTDOWN, "the rank is gone");
		answer(x, &e);
		return;
	}
	tag = agent_tag(ring->agent, ring->slot, on_copied, x);
	agent_send(ring->agent, Tcopy, 0, ring->slot, tag, -1, x->handle, x->offset, (uint32_t)x->n,
	    to + x->head.n);
}

/* The rank goes on copying: the slot is taken until then. */
static void
interrupted(struct req *r, enum interrupt how)
{
	struct read *x = r->waits_for;

	x->r = NULL;
	req_done(r, -EINTR);
}

void
device_read(struct device *d, struct req *r, struct slice head, uint64_t offset, size_t n)
{
	struct ring *ring = d->ring;
	struct read *x = xcalloc(1, sizeof(*x));
	size_t skip = (size_t)MIN(offset, head.n);

	n = MIN(n, (size_t)DEVICE_SLOT);
	*x = (struct read){.ring = ring, .r = r, .handle = d->handle};
	x->head = (struct slice){head.p + skip, MIN(head.n - skip, n)};
	x->offset = offset > head.n ? offset - head.n : 0;
	x->n = n - x->head.n;
	ring->refs++;
	r->waits_for = x;
	req_park(r, interrupted);
	for (int i = 0; i < DEVICE_SLOTS; i++) {
		if (ring->places[i].taken)
			continue;
		ring->places[i].taken = true;
		x->place = i;
		begin(x);
		return;
	}
	TAILQ_INSERT_TAIL(&ring->waiting, x, link);
}

static struct ring *
find(const struct agent *a, int slot)
{
	struct ring *ring;

	LIST_FOREACH (ring, &rings, link)
		if (ring->agent == a && ring->slot == slot)
			return ring;
	return NULL;
}

static int
watch_sent(struct err *e)
{
	if (sent_fd >= 0)
		return 0;
	sent_fd = fault("device.eventfd", EMFILE) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sent_fd < 0)
		return fail_errno(e, "eventfd");
	sent_watch = loop_fd(daemon_.loop, sent_fd, EPOLLIN, on_sent, NULL);
	return 0;
}

/* fd stays the caller's. */
static struct ring *
map(struct agent *a, int slot, int fd, struct err *e)
{
	struct ring *ring;
	struct stat st;
	void *memory;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < RING_SIZE) {
		fail(e, EBADMSG, "the rank's memory for copies is too small");
		return NULL;
	}
	if (watch_sent(e) < 0)
		return NULL;
	memory = mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		fail_errno(e, "the rank's memory for copies");
		return NULL;
	}
	ring = xcalloc(1, sizeof(*ring));
	*ring = (struct ring){.agent = a, .slot = slot, .memory = memory};
	TAILQ_INIT(&ring->waiting);
	LIST_INSERT_HEAD(&rings, ring, link);
	return ring;
}

struct device *
device_new(struct agent *a, int slot, uint32_t handle, int fd, struct err *e)
{
	struct ring *ring = find(a, slot);
	struct device *d;

	if (!ring)
		ring = map(a, slot, fd, e);
	close(fd);
	if (!ring)
		return NULL;
	d = xcalloc(1, sizeof(*d));
	*d = (struct device){.ring = ring, .handle = handle};
	ring->refs++;
	return d;
}

void
device_free(struct device *d)
{
	if (!d)
		return;
	unref(d->ring);
	free(d);
}
