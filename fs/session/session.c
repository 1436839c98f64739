/* Requests about open files: in, as struct req through the tree, replies out. Those about names are
 * in entry.c; what all share is in call.c. No other files know FUSE. */
#include "session/session.h"
#include "base/copy.h"
#include "group/group.h"
#include "host/ticks.h"
#include "session/directory.h"
#include "session/request.h"
#include "tree/event_file.h"
#include "tree/staged_file.h"
#include "tree/var_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static TAILQ_HEAD(, file) files = TAILQ_HEAD_INITIALIZER(files);

static void
op_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	request_show(fr, "getattr", request_node(ino), NULL);
	tree_stat(request_node(ino), &st);
	fuse_reply_attr(fr, &st, 0);
}

static void
op_setattr(fuse_req_t fr, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct node *n = request_node(ino);
	struct file *f = fi ? (struct file *)(uintptr_t)fi->fh : NULL;
	struct err e = {0};
	struct stat st;
	int r = 0;

	request_show(fr, "setattr", n, NULL);
	if ((to_set & FUSE_SET_ATTR_SIZE) && place_gone(&n->at))
		r = place_fail(&n->at, &e);
	else if ((to_set & FUSE_SET_ATTR_SIZE) && S_ISREG(n->row->mode)) {
		if (n->row->ops && n->row->ops->truncate)
			r = n->row->ops->truncate(&n->at, f, (uint64_t)attr->st_size, &e);
		else if (!(n->row->mode & 0200))
			r = fail(&e, EACCES, "can be read only");
	}
	if (request_by_watchdog(fr))
		n->mtime = now_wall();
	/* modes, owners and times are ours: editors and cp -p may set them without effect */
	if (r < 0) {
		request_fail(fr, n, NULL, r, &e);
		return;
	}
	tree_stat(n, &st);
	fuse_reply_attr(fr, &st, 0);
}

static void
op_readlink(fuse_req_t fr, fuse_ino_t ino)
{
	struct node *n = request_node(ino);
	struct buf b = {0};
	struct err e = {0};

	request_show(fr, "readlink", n, NULL);
	n->row->text(&n->at, &b, &e);
	buf_addc(&b, '\0');
	fuse_reply_readlink(fr, b.p);
	buf_free(&b);
}

/* ---- files ---- */

static void
file_free(struct file *f)
{
	if (f->poll_handle)
		fuse_pollhandle_destroy(f->poll_handle);
	TAILQ_REMOVE(&files, f, link);
	tree_release(f);
	free(f);
}

void
request_opened(struct request *c, int result)
{
	struct file *f = c->r.file;

	c->fi.fh = (uintptr_t)f;
	if (result < 0) {
		file_free(f);
		if (c->kind == REQUEST_CREATE)
			tree_forget(c->created, 1);
		fuse_reply_err(c->fr, -result);
		return;
	}
	if (c->kind == REQUEST_OPEN)
		result = fuse_reply_open(c->fr, &c->fi);
	else {
		struct fuse_entry_param e;

		directory_of(c->created, &e);
		result = fuse_reply_create(c->fr, &e, &c->fi);
	}
	if (result < 0) { /* the opener is gone: no release will come */
		file_free(f);
		if (c->kind == REQUEST_CREATE)
			tree_forget(c->created, 1);
	}
}

void
request_open(struct request *c, struct node *n)
{
	struct file *f = xcalloc(1, sizeof(*f));
	int r;

	*f = (struct file){.node = n, .flags = c->fi.flags};
	if ((f->flags & O_ACCMODE) != O_RDONLY)
		f->opener = req_process(&c->r);
	TAILQ_INSERT_TAIL(&files, f, link);
	c->r.file = f;
	c->fi.direct_io = !(n->row->flags & ROW_MAPPED) || request_direct_mmap();
	c->fi.keep_cache = 0;
	if (place_gone(&n->at))
		r = place_fail(&n->at, &c->r.err);
	else
		r = tree_open(f, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

static void
op_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = request_node(ino);
	struct request *c;

	request_show(fr, "open", n, NULL);
	/* a tick for CLOSE_WRITE on a file that nobody may write */
	if (request_by_watchdog(fr))
		fi->flags = (fi->flags & ~O_ACCMODE) | O_RDONLY;
	c = request_new(fr, REQUEST_OPEN);
	c->fi = *fi;
	request_open(c, n);
}

static struct file *
file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

static bool
gone(const struct file *f)
{
	return place_gone(&f->node->at);
}

static void
op_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct request *c;

	request_show(fr, "read", f->node, NULL);
	if (gone(f)) {
		fuse_reply_err(fr, ENODEV);
		return;
	}
	f->flags = (f->flags & ~O_NONBLOCK) | (fi->flags & O_NONBLOCK);
	c = request_new(fr, REQUEST_READ);
	c->r.file = f;
	c->r.want = size;
	c->r.offset = (uint64_t)off;
	tree_read(f, &c->r);
}

static void
op_write(
    fuse_req_t fr, fuse_ino_t ino, const char *p, size_t n, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct err e = {0};
	ssize_t r = -ENODEV;

	request_show(fr, "write", f->node, NULL);
	f->flags = (f->flags & ~O_NONBLOCK) | (fi->flags & O_NONBLOCK);
	if (!gone(f))
		r = f->ops && f->ops->write ? f->ops->write(f, p, n, (uint64_t)off, &e) : -EACCES;
	if (r < 0)
		request_fail(fr, f->node, NULL, (int)r, &e);
	else
		fuse_reply_write(fr, (size_t)r);
}

static void
sync_file(fuse_req_t fr, struct file *f, int (*fn)(struct file *f, struct req *r))
{
	struct request *c;
	int r;

	if (!fn || gone(f)) {
		fuse_reply_err(fr, fn && gone(f) ? ENODEV : 0);
		return;
	}
	c = request_new(fr, REQUEST_SYNC);
	c->r.file = f;
	r = fn(f, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

static void
op_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	request_show(fr, "flush", f->node, NULL);
	sync_file(fr, f, f->ops ? f->ops->flush : NULL);
}

static void
op_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	/* the flags of the open or the last write hold: FSYNC brings none */
	request_show(fr, "fsync", f->node, NULL);
	sync_file(fr, f, f->ops ? f->ops->fsync : NULL);
}

static void
op_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	request_show(fr, "release", request_node(ino), NULL);
	file_free(file_of(fi));
	fuse_reply_err(fr, 0);
}

static void
op_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct file *f = file_of(fi);
	unsigned ready = EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;

	request_show(fr, "poll", f->node, NULL);
	if (ph) {
		if (f->poll_handle)
			fuse_pollhandle_destroy(f->poll_handle);
		f->poll_handle = ph;
	}
	if (!gone(f) && f->ops && f->ops->poll)
		ready = f->ops->poll(f);
	fuse_reply_poll(fr, ready);
}

void
req_wake_pollers(void)
{
	struct file *f;

	TAILQ_FOREACH (f, &files, link) {
		if (!f->poll_handle || (!gone(f) && f->ops && f->ops->poll && !f->ops->poll(f)))
			continue;
		fuse_lowlevel_notify_poll(f->poll_handle);
		fuse_pollhandle_destroy(f->poll_handle);
		f->poll_handle = NULL;
	}
}

static void
op_statfs(fuse_req_t fr, fuse_ino_t ino)
{
	struct statvfs st = {.f_bsize = 1 << 20, .f_frsize = 4096, .f_namemax = 255};

	fuse_reply_statfs(fr, &st);
}

const struct fuse_lowlevel_ops fuse_ops = {
    .init = request_init,
    .lookup = directory_lookup,
    .forget = directory_forget,
    .forget_multi = directory_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = directory_mknod,
    .mkdir = directory_mkdir,
    .unlink = directory_unlink,
    .rmdir = directory_rmdir,
    .symlink = directory_symlink,
    .rename = directory_rename,
    .link = directory_link,
    .open = op_open,
    .create = directory_create,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .fsync = op_fsync,
    .release = op_release,
    .poll = op_poll,
    .opendir = directory_opendir,
    .readdir = directory_readdir,
    .releasedir = directory_releasedir,
    .statfs = op_statfs,
};
