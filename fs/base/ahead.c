/*
 * Two pieces for each reader: one is sent while a copy thread fills the other. A piece is used
 * within FRESH_NS, and only if no client has been answered anything since its copy began but bytes
 * of large objects: a reader then sees every change of which it has learnt here.
 */
#include "base/ahead.h"
#include "thread.h"
#include <stdatomic.h>
#include <stdlib.h>

enum {
	PIECE = 1 << 20,     /* the largest read of the kernel */
	FRESH_NS = 10000000, /* a reader in order is back after some 100 µs */
	READERS_MAX = 32,    /* with pieces; others read without */
	UNUSED_MAX = 2,	     /* pieces in a row that were copied in vain, */
	PAUSE = 8,	     /* and for how many reads none is copied then */
	GAP = 32 << 10	     /* small reads in between do not come here */
};

struct piece {
	char *p;
	uint64_t offset;
	size_t n; /* 0: it has none */
	uint64_t since, epoch;
	int users; /* those who send it */
	bool used;
};

/* A read that waits for a piece. */
struct reader {
	uint64_t offset;
	size_t n;
	ahead_fn *fn; /* NULL: none waits */
	void *arg;
};

struct ahead {
	int refs;	     /* held by the file, by the copy and by those who send a piece */
	uint64_t next, last; /* where a read in order begins; when the last one came */
	struct piece pieces[2], *now; /* now: the one that is read */
	bool filling;		      /* the other one */
	int unused, pause;
	struct source source; /* of the copy, which holds it */
	struct reader waiting;
	TAILQ_ENTRY(ahead) link; /* in the list of those with pieces */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below, and of each ahead */
static TAILQ_HEAD(, ahead) all = TAILQ_HEAD_INITIALIZER(all);
static int readers;
static atomic_ullong epoch = 1; /* 0: never */

void
ahead_expire(void)
{
	atomic_fetch_add(&epoch, 1);
}

uint64_t
ahead_epoch(void)
{
	return epoch;
}

static void
free_pieces(struct ahead *a)
{
	if (!a->pieces[0].p)
		return;
	TAILQ_REMOVE(&all, a, link);
	readers--;
	for (size_t i = 0; i < ARRAY_LEN(a->pieces); i++) {
		free(a->pieces[i].p);
		a->pieces[i] = (struct piece){0};
	}
}

static void
unref(struct ahead *a)
{
	if (--a->refs > 0)
		return;
	free_pieces(a);
	free(a);
}

static struct piece *
other(struct ahead *a)
{
	return &a->pieces[a->now == a->pieces];
}

static bool
is_fresh(const struct piece *x)
{
	return x->epoch == atomic_load(&epoch) && now_ns() - x->since < FRESH_NS;
}

static bool
has(const struct piece *x, const struct reader *r)
{
	return x->n && r->offset >= x->offset && r->offset + r->n <= x->offset + x->n &&
	       is_fresh(x);
}

/* Takes the pieces of somebody who has not read for a while, if there are too many. */
static void
make_room(void)
{
	struct ahead *a = TAILQ_FIRST(&all);

	while (a && (a->refs > 1 || now_ns() - a->last < FRESH_NS))
		a = TAILQ_NEXT(a, link);
	if (a)
		free_pieces(a);
}

static bool
has_room(struct ahead *a)
{
	if (a->pieces[0].p)
		return true;
	if (readers == READERS_MAX)
		make_room();
	if (readers == READERS_MAX)
		return false;
	readers++;
	for (size_t i = 0; i < ARRAY_LEN(a->pieces); i++)
		a->pieces[i].p = xmalloc(PIECE);
	TAILQ_INSERT_TAIL(&all, a, link);
	return true;
}

static void fill(void *arg);

/* Has the other piece filled from this offset on. */
static void
look_ahead(struct ahead *a, struct source s, uint64_t offset)
{
	struct piece *x = other(a);

	if (a->filling || x->users || offset < s.head_n || offset >= s.size || !has_room(a))
		return;
	a->unused = x->n && !x->used ? a->unused + 1 : 0;
	if (a->unused >= UNUSED_MAX)
		a->pause = PAUSE;
	if (a->pause > 0) {
		a->pause--;
		x->n = 0;
		return;
	}
	if (!source_hold(&s))
		return;
	a->source = s;
	a->filling = true;
	a->refs++;
	*x = (struct piece){
	    .p = x->p, .offset = offset, .since = now_ns(), .epoch = atomic_load(&epoch)};
	copy_call(fill, a);
}

/* Releases the lock while it sends. */
static void
send_piece(struct ahead *a, const struct reader *r)
{
	struct piece *x = a->now;

	x->used = true;
	x->users++;
	a->refs++;
	pthread_mutex_unlock(&lock);
	r->fn(r->arg, x->p + (r->offset - x->offset), (ssize_t)r->n);
	pthread_mutex_lock(&lock);
	x->users--;
	unref(a);
}

/* Passes on to the piece that has been filled, and has the next one filled. */
static void
advance(struct ahead *a, const struct source *s, const struct reader *r)
{
	a->now = other(a);
	look_ahead(a, *s, a->now->offset + a->now->n);
	send_piece(a, r);
}

/* Runs on a copy thread. */
static void
fill(void *arg)
{
	struct ahead *a = arg;
	struct piece *x = other(a);
	struct source s = a->source;
	ssize_t n = source_copy(&s, x->offset, x->p, (size_t)MIN(s.size - x->offset, PIECE));
	struct reader r;

	pthread_mutex_lock(&lock);
	r = a->waiting;
	a->waiting.fn = NULL;
	a->filling = false;
	x->n = n > 0 ? (size_t)n : 0;
	if (r.fn && r.offset + r.n > x->offset + x->n) { /* not all can be read */
		x->n = 0;
		x->users++;
		pthread_mutex_unlock(&lock);
		n = source_copy(&s, r.offset, x->p, r.n);
		r.fn(r.arg, x->p, n);
		pthread_mutex_lock(&lock);
		x->users--;
	} else if (r.fn) {
		advance(a, &s, &r);
	}
	unref(a);
	pthread_mutex_unlock(&lock);
	source_release(&s);
}

/* The piece that is being filled will have what r wants. */
static bool
will_have(struct ahead *a, const struct reader *r)
{
	const struct piece *x = other(a);

	return a->filling && !a->waiting.fn && is_fresh(x) && r->offset >= x->offset &&
	       r->offset + r->n <= x->offset + PIECE;
}

/* A reader that begins anew gets nothing that is older than what it has just read. */
static void
forget(struct ahead *a)
{
	for (size_t i = 0; i < ARRAY_LEN(a->pieces); i++)
		a->pieces[i].epoch = 0;
}

/* Reads from the pieces. Call with the lock held. False: they have not what r wants. */
static bool
read_pieces(struct ahead *a, const struct source *s, const struct reader *r)
{
	if (has(a->now, r))
		send_piece(a, r);
	else if (will_have(a, r))
		a->waiting = *r;
	else if (!a->filling && has(other(a), r))
		advance(a, s, r);
	else
		return false;
	return true;
}

void
ahead_read(
    struct ahead **to, const struct source *s, uint64_t offset, size_t n, ahead_fn *fn, void *arg)
{
	struct reader r = {offset, n, fn, arg};
	uint64_t now = now_ns();
	struct ahead *a = *to;
	bool follows, done;

	if (!s->size || s->sent) {
		copy_later(s, offset, n, fn, arg);
		return;
	}
	if (!a) {
		a = *to = xcalloc(1, sizeof(*a));
		a->refs = 1;
		a->now = a->pieces;
	}
	pthread_mutex_lock(&lock);
	follows = offset - a->next <= GAP && now - a->last < FRESH_NS;
	a->next = offset + n;
	a->last = now;
	if (!follows)
		forget(a);
	done = follows && read_pieces(a, s, &r);
	pthread_mutex_unlock(&lock);
	if (done)
		return;
	copy_later(s, offset, n, fn, arg); /* before what nobody has asked for yet */
	pthread_mutex_lock(&lock);
	if (follows)
		look_ahead(a, *s, a->next);
	pthread_mutex_unlock(&lock);
}

void
ahead_free(struct ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&lock);
	unref(a);
	pthread_mutex_unlock(&lock);
}
