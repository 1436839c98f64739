/*
 * A rank's shared memory is divided into slots. A slot is in use from the request to the rank until
 * the copy thread has sent the reply; reads for which there is none wait in the line of their GPU.
 * Each GPU may use only some of the slots: one that hangs does not block the others.
 */
#define _GNU_SOURCE
#include "object/device.h"
#include "base/daemon.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	LINES = 16,			  /* GPUs beyond these share a line */
	SLOTS_OF_LINE = DEVICE_SLOTS / 4, /* at most in use at once */
	NO_PLACE = -1
};

struct read {
	struct ring *ring;
	struct line *line; /* of its GPU */
	struct req *r;	   /* NULL: it was interrupted */
	uint32_t handle;
	struct slice head; /* the requested part of it */
	uint64_t offset;   /* after the head */
	size_t n;	   /* without the head */
	int place;	   /* NO_PLACE: it waits in its line */
	TAILQ_ENTRY(read) link;
};

/* Memory that a rank shares with the daemon. */
struct ring {
	struct agent *agent;
	int slot; /* of the rank at the agent */
	char *memory;
	int refs;     /* objects and reads */
	bool serving; /* inside serve() */
	int next;     /* the line to serve first */

	struct place_in_ring {
		struct line *line; /* of the read that uses it; NULL: free */
		_Atomic bool sent; /* by a copy thread */
	} places[DEVICE_SLOTS];

	struct line {
		int taken;
		TAILQ_HEAD(, read) waiting;
	} lines[LINES];

	LIST_ENTRY(ring) link;
};

struct device {
	struct ring *ring;
	struct line *line;
	uint32_t handle;
};

static const size_t RING_SIZE = (size_t)DEVICE_SLOT * DEVICE_SLOTS;

static LIST_HEAD(, ring) rings = LIST_HEAD_INITIALIZER(rings);
/* Copy threads signal here that something was sent. Never closed: a thread may still be about to
 * write to it after the loop has seen its flag. */
static int sent_fd = -1;

static void
unref(struct ring *ring)
{
	if (--ring->refs > 0)
		return;
	LIST_REMOVE(ring, link);
	munmap(ring->memory, RING_SIZE);
	free(ring);
}

static void begin(struct read *x);

static int
find_place(const struct ring *ring)
{
	for (int i = 0; i < DEVICE_SLOTS; i++)
		if (!ring->places[i].line)
			return i;
	return NO_PLACE;
}

/* Removes and returns the next waiting read that may have a slot, from each line in turn; NULL if
 * there is none. */
static struct read *
next_read(struct ring *ring)
{
	for (int i = 0; i < LINES; i++) {
		struct line *line = &ring->lines[(ring->next + i) % LINES];
		struct read *x = TAILQ_FIRST(&line->waiting);

		if (!x || line->taken >= SLOTS_OF_LINE)
			continue;
		ring->next = (ring->next + i + 1) % LINES;
		TAILQ_REMOVE(&line->waiting, x, link);
		return x;
	}
	return NULL;
}

/* Begins waiting reads while slots are free. A read that is answered at once frees its slot inside
 * begin(): this loop then sees the slot. */
static void
serve(struct ring *ring)
{
	struct read *x;
	int place;

	if (ring->serving)
		return;
	ring->serving = true;
	ring->refs++;
	while ((place = find_place(ring)) != NO_PLACE && (x = next_read(ring))) {
		ring->places[place].line = x->line;
		x->line->taken++;
		x->place = place;
		begin(x);
	}
	ring->serving = false;
	unref(ring);
}

static void
free_place(struct ring *ring, int place)
{
	ring->places[place].line->taken--;
	ring->places[place].line = NULL;
	serve(ring);
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

/* Runs on the loop or on a copy thread, which touches nothing else here. */
static void
sent(void *arg)
{
	_Atomic bool *flag = arg;
	uint64_t one = 1;

	atomic_store(flag, true);
	(void)!write(sent_fd, &one, sizeof(one)); /* counter full: a wakeup is pending */
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
	uint64_t tag;

	memcpy(ring->memory + to, x->head.p, x->head.n);
	if (x->n == 0) {
		answer(x, &e);
		return;
	}
	if (!agent_slot_lives(ring->agent, ring->slot)) {
		fail(&e, EHOSTDOWN, "the rank is gone");
		answer(x, &e);
		return;
	}
	tag = agent_tag(ring->agent, ring->slot, Tcopy, on_copied, x);
	agent_send(ring->agent, Tcopy, 0, ring->slot, tag, -1, x->handle, x->offset, (uint32_t)x->n,
	    to + x->head.n);
}

/* A rank that is copying continues: the slot stays in use until it is done. From here on the object
 * may be gone, and the head with it. */
static void
interrupted(struct req *r, enum interrupt how)
{
	struct read *x = r->waits_for;

	x->r = NULL;
	if (x->place == NO_PLACE) {
		TAILQ_REMOVE(&x->line->waiting, x, link);
		unref(x->ring);
		free(x);
	}
	req_done(r, -EINTR);
}

void
device_read(struct device *d, struct req *r, struct slice head, uint64_t offset, size_t n)
{
	struct ring *ring = d->ring;
	struct read *x = xcalloc(1, sizeof(*x));
	size_t skip = (size_t)MIN(offset, head.n);

	n = MIN(n, (size_t)DEVICE_SLOT);
	*x = (struct read){
	    .ring = ring, .line = d->line, .r = r, .handle = d->handle, .place = NO_PLACE};
	x->head = (struct slice){head.p + skip, MIN(head.n - skip, n)};
	x->offset = offset > head.n ? offset - head.n : 0;
	x->n = n - x->head.n;
	ring->refs++;
	r->waits_for = x;
	req_park(r, interrupted);
	TAILQ_INSERT_TAIL(&x->line->waiting, x, link);
	serve(ring);
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
	loop_fd(daemon_.loop, sent_fd, EPOLLIN, on_sent, NULL);
	return 0;
}

/* The caller keeps fd. The rank has the descriptor too: if it shrank the memory, the daemon would
 * die from SIGBUS. */
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
	if (fcntl(fd, F_GET_SEALS) < 0 || !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)) {
		fail(e, EBADMSG, "the rank's memory for copies can be made shorter");
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
	for (int i = 0; i < LINES; i++)
		TAILQ_INIT(&ring->lines[i].waiting);
	LIST_INSERT_HEAD(&rings, ring, link);
	return ring;
}

struct device *
device_new(struct agent *a, int slot, uint32_t handle, unsigned gpu, int fd, struct err *e)
{
	struct ring *ring = find(a, slot);
	struct device *d;

	if (!ring)
		ring = map(a, slot, fd, e);
	close(fd);
	if (!ring)
		return NULL;
	d = xcalloc(1, sizeof(*d));
	*d = (struct device){.ring = ring, .line = &ring->lines[gpu % LINES], .handle = handle};
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
