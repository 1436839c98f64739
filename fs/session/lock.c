/*
 * File locks. A file that is written has a node for each opener, so the kernel's own locks, which
 * are by node, would exclude nobody: these are by inode number, which stands for the path.
 */
#include "session/lock.h"
#include "session/request.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

struct lock {
	uint64_t ino, owner;
	bool whole; /* flock(2), which fcntl's locks do not meet */
	int type;   /* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t first, last;
	pid_t pid;
	TAILQ_ENTRY(lock) link;
};

/* One that waits for others to go. */
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

/* A lock of somebody else that is in the way, NULL: none. */
static struct lock *
conflict(const struct lock *want)
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

/* Takes a range out of what its owner holds; what sticks out on either side stays. */
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

/* Some may have what they wait for now: in their order, each from the head again. */
static void
serve_waiters(void)
{
	struct waiter *w;

	for (w = TAILQ_FIRST(&waiters); w;) {
		struct req *r = w->r;

		if (conflict(&w->want)) {
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

static void
want_lock(fuse_req_t fr, const struct lock *want, bool waits)
{
	struct request *c;
	struct waiter *w;

	if (!conflict(want)) {
		take(want);
		fuse_reply_err(fr, 0);
		serve_waiters();
		return;
	}
	if (!waits) {
		fuse_reply_err(fr, EAGAIN);
		return;
	}
	c = request_new(fr, NULL);
	w = xcalloc(1, sizeof(*w));
	*w = (struct waiter){.want = *want, .r = &c->r};
	c->r.waits_for = w;
	TAILQ_INSERT_TAIL(&waiters, w, link);
	req_park(&c->r, interrupted);
}

static struct lock
whole(fuse_ino_t ino, const struct fuse_file_info *fi, bool flocks)
{
	return (struct lock){.ino = request_node(ino)->ino,
	    .owner = fi->lock_owner,
	    .whole = flocks,
	    .type = F_UNLCK,
	    .last = UINT64_MAX};
}

static struct lock
range(fuse_ino_t ino, const struct fuse_file_info *fi, const struct flock *lock)
{
	struct lock l = whole(ino, fi, false);

	l.type = lock->l_type;
	l.pid = lock->l_pid;
	l.first = (uint64_t)lock->l_start;
	if (lock->l_len)
		l.last = l.first + (uint64_t)lock->l_len - 1;
	return l;
}

void
lock_flock(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct lock l = whole(ino, fi, true);

	if (!(op & LOCK_UN))
		l.type = op & LOCK_EX ? F_WRLCK : F_RDLCK;
	request_show(fr, "flock", request_node(ino), NULL);
	want_lock(fr, &l, !(op & LOCK_NB));
}

void
lock_get(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct lock want = range(ino, fi, lock), *l = conflict(&want);
	struct flock found = *lock;

	request_show(fr, "getlk", request_node(ino), NULL);
	found.l_type = F_UNLCK;
	if (l) {
		found.l_type = (short)l->type;
		found.l_whence = SEEK_SET;
		found.l_start = (off_t)l->first;
		found.l_len = l->last == UINT64_MAX ? 0 : (off_t)(l->last - l->first + 1);
		found.l_pid = l->pid;
	}
	fuse_reply_lock(fr, &found);
}

void
lock_set(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
	struct lock want = range(ino, fi, lock);

	request_show(fr, "setlk", request_node(ino), NULL);
	want_lock(fr, &want, sleep != 0);
}

static void
end(struct lock all)
{
	if (TAILQ_EMPTY(&held))
		return;
	cut(&all);
	serve_waiters();
}

void
lock_closed(fuse_ino_t ino, const struct fuse_file_info *fi)
{
	end(whole(ino, fi, false));
}

void
lock_released(fuse_ino_t ino, const struct fuse_file_info *fi)
{
	if (fi->flock_release)
		end(whole(ino, fi, true));
}
