/* File locks. A file that is written has one node per opener, so the kernel's own locks, which are
 * per node, would exclude nobody. These locks are per inode number, which is that of the path. */
#include "front/lock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* A request that waits for conflicting locks to go. */
struct waiter {
	struct lock want;
	struct req *r;
	TAILQ_ENTRY(waiter) link;
};

static TAILQ_HEAD(, lock) held = TAILQ_HEAD_INITIALIZER(held);
static TAILQ_HEAD(, waiter) waiters = TAILQ_HEAD_INITIALIZER(waiters);

static bool
overlap(const struct lock *a, const struct lock *b)
{
	return a->ino == b->ino && a->whole == b->whole && a->first <= b->last &&
	       b->first <= a->last;
}

const struct lock *
lock_conflict(const struct lock *want)
{
	struct lock *l;

	TAILQ_FOREACH (l, &held, link)
		if (l->owner != want->owner && overlap(l, want) && want->type != F_UNLCK &&
		    (l->type == F_WRLCK || want->type == F_WRLCK))
			return l;
	return NULL;
}

static void
add(struct lock l)
{
	struct lock *copy = xmalloc(sizeof(*copy));

	*copy = l;
	TAILQ_INSERT_TAIL(&held, copy, link);
}

/* Removes a range from the locks of its owner; the parts outside it stay. */
static void
cut(const struct lock *range)
{
	struct lock *l, *next;

	for (l = TAILQ_FIRST(&held); l; l = next) {
		struct lock before, behind;

		next = TAILQ_NEXT(l, link);
		if (l->owner != range->owner || !overlap(l, range))
			continue;
		before = behind = *l;
		TAILQ_REMOVE(&held, l, link);
		free(l);
		if (before.first < range->first) {
			before.last = range->first - 1;
			add(before);
		}
		if (behind.last > range->last) {
			behind.first = range->last + 1;
			add(behind);
		}
	}
}

static void
take(const struct lock *want)
{
	cut(want);
	if (want->type != F_UNLCK)
		add(*want);
}

/* Takes the locks of waiters that no longer have a conflict: in order, each time from the head
 * again. */
static void
serve_waiters(void)
{
	struct waiter *w;

	for (w = TAILQ_FIRST(&waiters); w;) {
		struct req *r = w->r;

		if (lock_conflict(&w->want)) {
			w = TAILQ_NEXT(w, link);
			continue;
		}
		take(&w->want);
		TAILQ_REMOVE(&waiters, w, link);
		free(w);
		req_done(r, 0);
		w = TAILQ_FIRST(&waiters);
	}
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct waiter *w = r->waits_for;

	TAILQ_REMOVE(&waiters, w, link);
	free(w);
	req_done(r, -EINTR);
}

bool
lock_take(const struct lock *want)
{
	if (lock_conflict(want))
		return false;
	if (want->type != F_UNLCK || !TAILQ_EMPTY(&held)) {
		take(want);
		serve_waiters();
	}
	return true;
}

void
lock_wait(const struct lock *want, struct req *r)
{
	struct waiter *w = xcalloc(1, sizeof(*w));

	*w = (struct waiter){.want = *want, .r = r};
	r->waits_for = w;
	TAILQ_INSERT_TAIL(&waiters, w, link);
	req_park(r, interrupted);
}
