/* Open files: created, opened, written, freed. */
#include "front/open_file.h"
#include "base/ahead.h"
#include "base/req.h"
#include "base/stderr_of.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* All open files. Some may still be open when the daemon ends. */
static TAILQ_HEAD(file_list, file) files = TAILQ_HEAD_INITIALIZER(files);
static struct file_list written = TAILQ_HEAD_INITIALIZER(written); /* those that may be written */

/* Adds step to the twin counts of f and of the other writable files that its opener has on the same
 * inode. */
static void
count_twins(struct file *f, int step)
{
	struct file *o;

	TAILQ_FOREACH (o, &written, written_link)
		if (o != f && o->opener == f->opener && o->node->ino == f->node->ino) {
			o->twins += step;
			f->twins += step;
		}
}

struct file *
open_file_new(struct node *n, int flags, pid_t opener)
{
	struct file *f = xcalloc(1, sizeof(*f));

	*f = (struct file){.node = n, .flags = flags, .opener = opener};
	if (f->opener) {
		count_twins(f, 1);
		TAILQ_INSERT_TAIL(&written, f, written_link);
	}
	TAILQ_INSERT_TAIL(&files, f, link);
	n->opens++;
	req_count_file(1);
	return f;
}

void
open_file_free(struct file *f)
{
	if (f->opener) {
		TAILQ_REMOVE(&written, f, written_link);
		count_twins(f, -1);
	}
	TAILQ_REMOVE(&files, f, link);
	f->node->opens--;
	req_count_file(-1);
	tree_release(f);
	tree_closed(f->node);
	stderr_of_unref(f->err);
	ahead_free(f->ahead);
	free(f);
}

bool
open_file_gone(const struct file *f)
{
	return place_gone(&f->node->at);
}

int
open_file_open(struct file *f, struct req *r)
{
	r->file = f;
	f->opener_uid = r->uid;
	return open_file_gone(f) ? place_fail(&f->node->at, &r->err) : tree_open(f, r);
}

ssize_t
open_file_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	if (open_file_gone(f))
		return -ENODEV;
	return f->ops && f->ops->write ? f->ops->write(f, p, n, offset, e) : -EACCES;
}

bool
open_file_whole(struct file *f)
{
	return f->ops->whole && f->ops->whole(f);
}

int
open_file_sync(struct file *f, struct req *r, int (*fn)(struct file *f, struct req *r))
{
	r->file = f;
	if (!fn)
		return 0;
	return open_file_gone(f) ? -ENODEV : fn(f, r);
}

int
open_file_truncate(const struct node *n, struct file *f, uint64_t size, struct err *e)
{
	if (place_gone(&n->at))
		return place_fail(&n->at, e);
	if (!S_ISREG(n->row->mode))
		return 0;
	if (n->row->ops && n->row->ops->truncate)
		return n->row->ops->truncate(&n->at, f, size, e);
	return n->row->mode & 0200 ? 0 : fail(e, EACCES, "can be read only");
}

int
open_file_flags(const struct file *f)
{
	return (f->node->row->flags & ROW_LIVE) && (f->flags & O_NOFOLLOW) ? f->flags | O_NONBLOCK
									   : f->flags;
}

bool
open_file_ends(const struct file *f, int result)
{
	return result == -EAGAIN && (f->flags & O_NOFOLLOW);
}
