/*
 * A rank's shared memory is divided into places. A place is in use from the request to the rank
 * until its bytes have been sent; reads for which there is none wait in the line of their GPU. Each
 * GPU may use only some of the places: one that hangs does not block the others.
 */
#define _GNU_SOURCE
#include "ring.h"
#include "wire.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
	LINES = 16,			  /* GPUs beyond these share a line */
	PLACES_OF_LINE = DEVICE_SLOTS / 4 /* at most in use at once */
};

struct ring {
	struct loop *loop;
	struct ring_rank rank;
	char *memory;
	int refs;     /* objects and places in use */
	bool serving; /* inside serve() */
	int next;     /* the line to serve first */

	struct ring_place {
		struct ring *ring;
		struct line *line;   /* of the object whose bytes are in it; NULL: free */
		struct range *range; /* to be answered when they are; NULL: none any more */
		struct loop_call sent;
	} places[DEVICE_SLOTS];

	struct line {
		int taken;
		TAILQ_HEAD(, range) waiting;
	} lines[LINES];

	LIST_ENTRY(ring) link;
};

struct object {
	struct provider provider; /* first */
	struct ring *ring;
	struct line *line;
	uint32_t handle;
};

static const size_t RING_SIZE = (size_t)DEVICE_SLOT * DEVICE_SLOTS;

static LIST_HEAD(, ring) rings = LIST_HEAD_INITIALIZER(rings);

static void
unref(struct ring *ring)
{
	if (--ring->refs > 0)
		return;
	LIST_REMOVE(ring, link);
	munmap(ring->memory, RING_SIZE);
	free(ring);
}

static void begin(struct ring_place *p);

static struct ring_place *
find_place(struct ring *ring)
{
	for (int i = 0; i < DEVICE_SLOTS; i++)
		if (!ring->places[i].line)
			return &ring->places[i];
	return NULL;
}

/* The next line with a read that may have a place, each in turn; NULL if there is none. */
static struct line *
next_line(struct ring *ring)
{
	for (int i = 0; i < LINES; i++) {
		int k = (ring->next + i) % LINES;
		struct line *line = &ring->lines[k];

		if (TAILQ_EMPTY(&line->waiting) || line->taken >= PLACES_OF_LINE)
			continue;
		ring->next = (k + 1) % LINES;
		return line;
	}
	return NULL;
}

/* Begins waiting reads while places are free. A read that is answered at once frees its place
 * inside begin(): this loop then sees the place. */
static void
serve(struct ring *ring)
{
	struct ring_place *p;
	struct line *line;

	if (ring->serving)
		return;
	ring->serving = true;
	ring->refs++;
	while ((p = find_place(ring)) && (line = next_line(ring))) {
		p->range = TAILQ_FIRST(&line->waiting);
		TAILQ_REMOVE(&line->waiting, p->range, queue_link);
		p->line = line;
		line->taken++;
		ring->refs++;
		begin(p);
	}
	ring->serving = false;
	unref(ring);
}

static void
free_place(void *arg)
{
	struct ring_place *p = arg;

	p->line->taken--;
	p->line = NULL;
	serve(p->ring);
	unref(p->ring);
}

/* Runs on any thread. */
static void
sent(void *arg)
{
	struct ring_place *p = arg;

	loop_post(p->ring->loop, &p->sent);
}

static uint64_t
offset_of(const struct ring_place *p)
{
	return (uint64_t)(p - p->ring->places) * DEVICE_SLOT;
}

void
ring_copied(struct ring_place *p, const struct err *e)
{
	struct range *x = p->range;
	struct source bytes = {.kind = SOURCE_MEMORY,
	    .fd = -1,
	    .head = p->ring->memory + offset_of(p),
	    .sent = sent,
	    .sent_arg = p};

	p->range = NULL;
	if (x && !e) {
		bytes.head_n = x->head.n + x->n;
		range_answer(x, &bytes, NULL);
		return;
	}
	if (x)
		range_answer(x, NULL, e);
	free_place(p);
}

static void
begin(struct ring_place *p)
{
	const struct range *x = p->range;
	const struct object *o = (const struct object *)x->of;
	const struct ring_rank *rank = &p->ring->rank;
	uint64_t to = offset_of(p);
	struct err e = {0};

	memcpy(p->ring->memory + to, x->head.p, x->head.n);
	if (x->n == 0 || rank->ask(rank, o->handle, x, p, to + x->head.n, &e) < 0)
		ring_copied(p, e.no ? &e : NULL);
}

/* ---- objects ---- */

static void
read_object(struct range *x)
{
	struct object *o = (struct object *)x->of;

	x->head.n = MIN(x->head.n, (size_t)DEVICE_SLOT);
	x->n = MIN(x->n, (size_t)DEVICE_SLOT - x->head.n);
	TAILQ_INSERT_TAIL(&o->provider.ranges, x, link);
	TAILQ_INSERT_TAIL(&o->line->waiting, x, queue_link);
	serve(o->ring);
}

/* A rank that is copying continues: the place stays in use until it is done. */
static void
cancel(struct range *x)
{
	struct object *o = (struct object *)x->of;

	for (int i = 0; i < DEVICE_SLOTS; i++)
		if (o->ring->places[i].range == x) {
			o->ring->places[i].range = NULL;
			return;
		}
	TAILQ_REMOVE(&o->line->waiting, x, queue_link);
}

static void
free_object(struct provider *provider)
{
	struct object *o = (struct object *)provider;

	unref(o->ring);
	free(o);
}

static struct ring *
find(const struct ring_rank *rank)
{
	struct ring *ring;

	LIST_FOREACH (ring, &rings, link)
		if (ring->rank.agent == rank->agent && ring->rank.slot == rank->slot)
			return ring;
	return NULL;
}

/* The rank has the descriptor too: if it shrank the memory, SIGBUS would kill this process. */
static struct ring *
map(struct loop *l, const struct ring_rank *rank, int fd, struct err *e)
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
	memory = mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		fail_errno(e, "the rank's memory for copies");
		return NULL;
	}
	ring = xcalloc(1, sizeof(*ring));
	*ring = (struct ring){.loop = l, .rank = *rank, .memory = memory};
	for (int i = 0; i < LINES; i++)
		TAILQ_INIT(&ring->lines[i].waiting);
	for (int i = 0; i < DEVICE_SLOTS; i++)
		ring->places[i] = (struct ring_place){
		    .ring = ring, .sent = {.fn = free_place, .arg = &ring->places[i]}};
	LIST_INSERT_HEAD(&rings, ring, link);
	return ring;
}

struct provider *
ring_provider(struct loop *l, const struct ring_rank *rank, uint32_t handle, unsigned gpu, int fd,
    struct err *e)
{
	static const struct provider_ops ops = {read_object, cancel, free_object};
	struct ring *ring = find(rank);
	struct object *o;

	if (!ring)
		ring = map(l, rank, fd, e);
	if (!ring)
		return NULL;
	o = xcalloc(1, sizeof(*o));
	*o = (struct object){{.ops = &ops}, ring, &ring->lines[gpu % LINES], handle};
	TAILQ_INIT(&o->provider.ranges);
	ring->refs++;
	return &o->provider;
}
