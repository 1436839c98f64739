/*
 * Two pieces for each reader: one is sent while a copy thread fills the other. A piece is used
 * within FRESH_NS, and only if no client has asked for anything else since its copy began: a reader
 * then sees every change that it can know of.
 */
#include "ahead.h"
#include "thread.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	PIECE = 1 << 20,     /* the largest read of the kernel */
	FRESH_NS = 10000000, /* a reader in order is back after some 100 µs */
	READERS_MAX = 32,    /* with pieces; others read without */
	GAP = 32 << 10	     /* small reads in between do not come here */
};

struct piece {
	char *p;
	uint64_t offset;
	size_t n; /* 0: it has none */
	uint64_t since, epoch;
	int users; /* those who send it */
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
	struct source source;	      /* for that; its descriptor is our own */
	struct reader waiting;
};

static const struct source nothing = {.kind = SOURCE_MEMORY, .fd = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below, and of each ahead */
static int readers;
static atomic_ullong epoch;

void
ahead_expire(void)
{
	atomic_fetch_add(&epoch, 1);
}

static void
unref(struct ahead *a)
{
	if (--a->refs > 0)
		return;
	readers -= a->pieces[0].p != NULL;
	free(a->pieces[0].p);
	free(a->pieces[1].p);
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

static bool
has_room(struct ahead *a)
{
	if (a->pieces[0].p)
		return true;
	if (readers == READERS_MAX)
		return false;
	readers++;
	a->pieces[0].p = xmalloc(PIECE);
	a->pieces[1].p = xmalloc(PIECE);
	return true;
}

static int *
descriptor(struct source *s)
{
	return s->kind == SOURCE_PROCESS ? &s->pidfd : &s->fd;
}

static void fill(void *arg, const char *unused, ssize_t unused_n);

/* Has the other piece filled from this offset on. */
static void
look_ahead(struct ahead *a, struct source s, uint64_t offset)
{
	struct piece *x = other(a);
	int fd;

	if (a->filling || x->users || offset < s.head_n || offset >= s.size || !has_room(a))
		return;
	/* the source's owner may close its own meanwhile */
	fd = fcntl(*descriptor(&s), F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return;
	*descriptor(&s) = fd;
	a->source = s;
	a->filling = true;
	a->refs++;
	*x = (struct piece){
	    .p = x->p, .offset = offset, .since = now_ns(), .epoch = atomic_load(&epoch)};
	copy_later(&nothing, 0, 0, fill, a);
}

/* Releases the lock while it sends. */
static void
send_piece(struct ahead *a, const struct reader *r)
{
	struct piece *x = a->now;

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
fill(void *arg, const char *unused, ssize_t unused_n)
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
	if (r.fn && n > 0) {
		r.n =
		    (size_t)MIN((uint64_t)r.n, x->offset + x->n - MIN(r.offset, x->offset + x->n));
		advance(a, &s, &r);
	}
	pthread_mutex_unlock(&lock);
	if (r.fn && n <= 0)
		r.fn(r.arg, NULL, n);
	close(*descriptor(&s));
	pthread_mutex_lock(&lock);
	unref(a);
	pthread_mutex_unlock(&lock);
}

/* The piece that is being filled will have what r wants. */
static bool
will_have(struct ahead *a, const struct reader *r)
{
	const struct piece *x = other(a);

	return a->filling && !a->waiting.fn && x->epoch == atomic_load(&epoch) &&
	       r->offset >= x->offset && r->offset + r->n <= x->offset + PIECE;
}

/* Reads from the pieces, which the lock guards. False: they have not what r wants. */
static bool
read_pieces(struct ahead *a, const struct source *s, const struct reader *r)
{
	uint64_t now = now_ns();
	bool follows = r->offset - a->next <= GAP && now - a->last < FRESH_NS;

	a->next = r->offset + r->n;
	a->last = now;
	if (!follows)
		return false;
	if (has(a->now, r)) {
		send_piece(a, r);
	} else if (will_have(a, r)) {
		a->waiting = *r;
	} else if (!a->filling && has(other(a), r)) {
		advance(a, s, r);
	} else {
		look_ahead(a, *s, a->next);
		return false;
	}
	return true;
}

void
ahead_read(
    struct ahead **to, const struct source *s, uint64_t offset, size_t n, ahead_fn *fn, void *arg)
{
	struct reader r = {offset, n, fn, arg};
	struct ahead *a = *to;
	bool done = false;

	if (s->size && !s->sent) {
		if (!a) {
			a = *to = xcalloc(1, sizeof(*a));
			a->refs = 1;
			a->now = a->pieces;
		}
		pthread_mutex_lock(&lock);
		done = read_pieces(a, s, &r);
		pthread_mutex_unlock(&lock);
	}
	if (!done)
		copy_later(s, offset, n, fn, arg);
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
