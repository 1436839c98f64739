/*
 * FUSE requests about file locks. A file that is written has one node per opener, so the kernel's
 * own locks, which are per node, would exclude nobody: front/lock.c locks paths instead.
 */
#include "session/lock.h"
#include "front/lock.h"
#include "session/request.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

static void
want_lock(fuse_req_t fr, const struct lock *want, bool waits)
{
	struct request *c;

	if (lock_take(want)) {
		request_error(fr, 0);
	} else if (waits) {
		c = request_new(fr, NULL);
		c->made_again = true;
		lock_wait(want, &c->r);
	} else {
		request_error(fr, EAGAIN);
	}
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
	struct lock want = range(ino, fi, lock);
	const struct lock *l = lock_conflict(&want);
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

void
lock_closed(fuse_ino_t ino, const struct fuse_file_info *fi)
{
	struct lock all = whole(ino, fi, false);

	lock_take(&all);
}

void
lock_released(fuse_ino_t ino, const struct fuse_file_info *fi)
{
	struct lock all = whole(ino, fi, true);

	if (fi->flock_release)
		lock_take(&all);
}
