/* Messages about files: open, read, write, sync, close, lock. */
#include "front/entry.h"
#include "front/listing.h"
#include "front/lock.h"
#include "front/open_file.h"
#include "ninep/ops.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum {
	READ_HEAD = NINEP_HEADER + 4, /* bytes of a reply before its data */
	LIVE_MAX = 64 << 10	      /* bytes of one read that may block */
};

/* Flags of 9P2000.L, which are those of Linux on most machines. */
enum {
	L_CREAT = 00000100,
	L_EXCL = 00000200,
	L_TRUNC = 00001000,
	L_APPEND = 00002000,
	L_NONBLOCK = 00004000,
	L_DIRECTORY = 00200000,
	L_NOFOLLOW = 00400000
};

/* Open modes of 9P2000, and the permission bit of a new directory. */
enum { PLAIN_ACCESS = 3, PLAIN_EXEC = 3, PLAIN_TRUNC = 0x10 };

static const uint32_t plain_dir = 0x80000000;

/* Lock types of 9P2000.L, and the results of a lock request. */
enum { L_LOCK_READ, L_LOCK_WRITE, L_LOCK_NONE };

enum { L_LOCK_SUCCESS, L_LOCK_BLOCKED };

int
op_settle(struct call *c, int result)
{
	if (result != PARKED)
		req_done(&c->r, result);
	return PARKED;
}

/* ---- open, create ---- */

static int
flags_of_l(uint64_t flags)
{
	static const struct {
		unsigned l;
		int own;
	} names[] = {{L_CREAT, O_CREAT}, {L_EXCL, O_EXCL}, {L_TRUNC, O_TRUNC}, {L_APPEND, O_APPEND},
	    {L_NONBLOCK, O_NONBLOCK}, {L_DIRECTORY, O_DIRECTORY}, {L_NOFOLLOW, O_NOFOLLOW}};

	int own = (int)(flags & O_ACCMODE);

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (flags & names[i].l)
			own |= names[i].own;
	return own;
}

static int
flags_of_plain(uint64_t mode)
{
	int access = (int)(mode & PLAIN_ACCESS);

	return (access == PLAIN_EXEC ? O_RDONLY : access) | (mode & PLAIN_TRUNC ? O_TRUNC : 0);
}

static void
put_opened(struct call *c)
{
	struct ninep_qid q = fid_qid(c->fid->node);

	ninep_put_qid(&c->body, &q);
	ninep_put(&c->body, 4, 0); /* iounit: only msize limits a message */
}

/* The file of a call is open, or opening it failed. */
static int
opened(struct call *c, int result)
{
	struct file *f = c->r.file;

	c->fid->opening = false;
	if (result < 0) {
		open_file_free(f);
		if (c->created)
			tree_forget(c->created, 1);
		return result;
	}
	tree_open_size(f);
	if (c->created)
		fid_move(c->fid, c->created);
	c->fid->file = f;
	put_opened(c);
	return 0;
}

static int
open_node(struct call *c, struct node *n, int flags)
{
	struct file *f = open_file_new(n, flags, 0);

	f->flags = open_file_flags(f);
	c->fid->opening = true;
	c->finish = opened;
	return op_settle(c, open_file_open(f, &c->r));
}

/* The same for the directory of a call. */
static int
listed(struct call *c, int result)
{
	c->fid->opening = false;
	if (result < 0) {
		listing_free(c->listing);
		return result;
	}
	c->fid->listing = c->listing;
	put_opened(c);
	return 0;
}

static int
open_fid(struct call *c, uint64_t number, int flags)
{
	struct fid *f;

	if (call_take_fid(c, number) < 0)
		return -EBADF;
	f = c->fid;
	if (fid_is_open(f))
		return fail(&c->r.err, EBADF, "the fid is open already");
	if (S_ISLNK(f->node->row->mode))
		return -ELOOP;
	if (!S_ISDIR(f->node->row->mode))
		return flags & O_DIRECTORY ? -ENOTDIR : open_node(c, f->node, flags);
	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		return -EISDIR;
	if (place_gone(&f->node->at))
		return -ENODEV;
	f->opening = true;
	c->listing = listing_new(f->node);
	c->finish = listed;
	return op_settle(c, listing_open(c->listing, &c->r));
}

int
op_open(struct call *c, struct ninep_field *f)
{
	return open_fid(c, f[0].n, flags_of_plain(f[1].n));
}

int
op_lopen(struct call *c, struct ninep_field *f)
{
	return open_fid(c, f[0].n, flags_of_l(f[1].n));
}

/* Creates and opens a file: the fid of its directory becomes that of the file. */
static int
create(struct call *c, struct ninep_field *f, int flags, mode_t mode)
{
	char *name = ninep_part(f[1].s);
	struct node *dir, *n;
	int error;

	if (!name)
		return -EINVAL;
	dir = c->fid->node;
	n = tree_lookup(dir, name, &error);
	if (n && (flags & O_EXCL)) {
		tree_forget(n, 1);
		n = NULL;
		error = -EEXIST;
	} else if (n) {
		flags &= ~O_CREAT;
	} else if (error == -ENOENT) {
		flags |= O_TRUNC;
		n = entry_create(dir, name, flags, mode, &c->r.err);
		error = -c->r.err.no;
	}
	free(name);
	c->created = n;
	return n ? open_node(c, n, flags) : error;
}

int
op_lcreate(struct call *c, struct ninep_field *f)
{
	if (call_take_fid(c, f[0].n) < 0 || fid_is_open(c->fid))
		return -EBADF;
	return create(c, f, flags_of_l(f[2].n) | O_CREAT, (mode_t)f[3].n);
}

static int
make_dir(struct call *c, struct ninep_field *f)
{
	char *name = ninep_part(f[1].s);
	struct node *n = NULL;
	int r = name ? entry_make_dir(c->fid->node, name, &c->r.err) : -EINVAL;

	if (r == 0)
		n = tree_lookup(c->fid->node, name, &r);
	free(name);
	if (!n)
		return r;
	fid_move(c->fid, n);
	c->fid->listing = listing_new(n);
	put_opened(c);
	return 0;
}

int
op_create(struct call *c, struct ninep_field *f)
{
	if (call_take_fid(c, f[0].n) < 0 || fid_is_open(c->fid))
		return -EBADF;
	if (f[2].n & plain_dir)
		return make_dir(c, f);
	return create(c, f, flags_of_plain(f[3].n) | O_CREAT, (mode_t)(f[2].n & ALLPERMS));
}

/* ---- read, write ---- */

static int
read_ended(struct call *c, int result)
{
	if (!open_file_ends(c->r.file, result))
		return result;
	ninep_put(&c->body, 4, 0);
	return 0;
}

static struct file *
file_of(struct call *c, uint64_t number, int not_for)
{
	struct file *f = call_take_fid(c, number) < 0 ? NULL : c->fid->file;

	return f && (f->flags & O_ACCMODE) != not_for ? f : NULL;
}

int
op_read(struct call *c, struct ninep_field *f)
{
	size_t count = (size_t)MIN(f[2].n, (uint64_t)c->conn->msize - READ_HEAD);
	struct file *file = file_of(c, f[0].n, O_WRONLY);

	if (c->fid && c->fid->listing)
		return c->conn->dialect == NINEP_L ? -EISDIR : op_read_dir(c, f[1].n, count);
	if (!file)
		return -EBADF;
	if (open_file_gone(file))
		return -ENODEV;
	if (file->node->row->flags & ROW_LIVE)
		count = MIN(count, (size_t)LIVE_MAX);
	c->r.file = file;
	c->r.want = count;
	c->r.offset = f[1].n;
	c->r.nonblock = file->flags & O_NONBLOCK;
	c->finish = read_ended;
	tree_read(file, &c->r);
	return PARKED;
}

static int
write_ended(struct call *c, int result)
{
	if (result == 0)
		ninep_put(&c->body, 4, c->r.want);
	return result;
}

int
op_write(struct call *c, struct ninep_field *f)
{
	struct file *file = file_of(c, f[0].n, O_RDONLY);
	ssize_t n;

	if (!file)
		return -EBADF;
	n = open_file_write(file, f[2].s.p, f[2].s.n, f[1].n, &c->r.err);
	if (n < 0) {
		front_journal(file->node, NULL, &c->r.err);
		return (int)n;
	}
	if (open_file_whole(file)) {
		c->r.want = (size_t)n;
		c->finish = write_ended;
		return op_settle(c, open_file_sync(file, &c->r, file->ops->complete));
	}
	ninep_put(&c->body, 4, (uint64_t)n);
	return 0;
}

/* ---- fsync, clunk ---- */

int
op_fsync(struct call *c, struct ninep_field *f)
{
	struct file *file;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	file = c->fid->file;
	if (!file || !file->ops)
		return 0;
	return op_settle(c, open_file_sync(file, &c->r, file->ops->fsync));
}

int
op_clunk(struct call *c, struct ninep_field *f)
{
	struct file *file;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	file = c->fid->file;
	fid_drop(&c->conn->fids, c->fid);
	if (!file || !file->ops)
		return 0;
	c->r.closer = CLOSER_LAST;
	return op_settle(c, open_file_sync(file, &c->r, file->ops->flush));
}

void
op_discard(const struct fid *f)
{
	struct req r = {.closer = CLOSER_KILLED};

	if (f->file && f->file->ops)
		open_file_sync(f->file, &r, f->file->ops->flush);
}

/* ---- locks ---- */

/* A lock on the whole file counts as one of flock(2), which has no ranges, so the two conflict. */
static int
lock_of(struct call *c, uint64_t type, uint64_t start, uint64_t length, uint64_t process,
    struct lock *l)
{
	static const int types[] = {
	    [L_LOCK_READ] = F_RDLCK, [L_LOCK_WRITE] = F_WRLCK, [L_LOCK_NONE] = F_UNLCK};

	if (type >= ARRAY_LEN(types) || (length && start > UINT64_MAX - length))
		return -EINVAL;
	*l = (struct lock){.ino = c->fid->node->ino,
	    .owner = (uintptr_t)c->fid,
	    .whole = !start && !length,
	    .type = types[type],
	    .first = start,
	    .last = length ? start + length - 1 : UINT64_MAX,
	    .pid = (pid_t)process};
	return 0;
}

int
op_lock(struct call *c, struct ninep_field *f)
{
	struct lock l;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	if (lock_of(c, f[1].n, f[3].n, f[4].n, f[5].n, &l) < 0)
		return -EINVAL;
	/* does not block: the client tries again */
	ninep_put(&c->body, 1, lock_take(&l) ? L_LOCK_SUCCESS : L_LOCK_BLOCKED);
	return 0;
}

int
op_getlock(struct call *c, struct ninep_field *f)
{
	struct lock l;
	const struct lock *other;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	if (lock_of(c, f[1].n, f[2].n, f[3].n, f[4].n, &l) < 0)
		return -EINVAL;
	other = lock_conflict(&l);
	if (other)
		l = *other;
	ninep_put(&c->body, 1,
	    !other		? L_LOCK_NONE
	    : l.type == F_WRLCK ? L_LOCK_WRITE
				: L_LOCK_READ);
	ninep_put(&c->body, 8, l.first);
	ninep_put(&c->body, 8, l.last == UINT64_MAX ? 0 : l.last - l.first + 1);
	ninep_put(&c->body, 4, (uint64_t)l.pid);
	ninep_put_text(&c->body, "");
	return 0;
}
