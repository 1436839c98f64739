/* FUSE requests about nodes and open files: passes them to the tree and sends the replies. */
#include "session/file.h"
#include "base/ahead.h"
#include "front/open_file.h"
#include "group/group.h"
#include "host/ticks.h"
#include "session/client.h"
#include "session/lock.h"
#include "session/request.h"
#include "tree/writer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static TAILQ_HEAD(, file) polled = TAILQ_HEAD_INITIALIZER(polled); /* those with poll(2) waiters */

void
file_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = request_node(ino);
	struct stat st;

	request_show(fr, "getattr", n, NULL);
	/* removed, perhaps over a socket: the kernel looks the path up again */
	if (S_ISDIR(n->row->mode) && place_gone(&n->at)) {
		request_error(fr, ESTALE);
		return;
	}
	if (!(n->row->flags & ROW_PRIVATE_NODE))
		ahead_expire();
	tree_stat(n, &st);
	fuse_reply_attr(fr, &st, 0);
}

void
file_setattr(
    fuse_req_t fr, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct node *n = request_node(ino);
	struct file *f = fi ? (struct file *)(uintptr_t)fi->fh : NULL;
	struct err e = {0};
	struct stat st;
	int r = 0;

	request_show(fr, "setattr", n, NULL);
	if (to_set & FUSE_SET_ATTR_SIZE)
		r = open_file_truncate(n, f, (uint64_t)attr->st_size, &e);
	if (request_by_watchdog(fr))
		n->mtime = now_wall();
	/* we decide modes, owners and times: editors and cp -p may set them, without effect */
	if (r < 0) {
		request_fail(fr, n, NULL, r, &e);
		return;
	}
	tree_stat(n, &st);
	fuse_reply_attr(fr, &st, 0);
}

/* Without this operation the C library would write a byte to each block. */
void
file_fallocate(
    fuse_req_t fr, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
	struct node *n = request_node(ino);
	struct err e = {0};
	struct stat st;
	int r = mode ? -EOPNOTSUPP : 0;

	request_show(fr, "fallocate", n, NULL);
	tree_stat(n, &st);
	if (!mode && offset + length > st.st_size)
		r = open_file_truncate(
		    n, (struct file *)(uintptr_t)fi->fh, (uint64_t)offset + (uint64_t)length, &e);
	request_fail(fr, n, NULL, r, &e);
}

void
file_readlink(fuse_req_t fr, fuse_ino_t ino)
{
	struct node *n = request_node(ino);
	struct buf b = {0};
	struct err e = {0};
	int r;

	request_show(fr, "readlink", n, NULL);
	r = tree_link(n, &b, &e);
	buf_addc(&b, '\0');
	if (r < 0)
		request_error(fr, -r);
	else
		fuse_reply_readlink(fr, b.p);
	buf_free(&b);
}

/* ---- files ---- */

static void
file_free(struct file *f)
{
	if (f->polled)
		TAILQ_REMOVE(&polled, f, polled_link);
	if (f->poll_handle)
		fuse_pollhandle_destroy(f->poll_handle);
	open_file_free(f);
}

/* Programs that read with sendfile(2) or splice(2), as busybox, node and Python's shutil do, get no
 * more bytes than the size that the kernel knows, and for texts and views it learns that from the
 * lookup at best. Storing the last byte of the file tells the kernel the size; the page of that
 * byte is dropped when the open is answered. Returns 0 or -ESTALE. */
static int
tell_size(struct file *f)
{
	struct node *n = f->node;
	uint64_t size = tree_open_size(f);
	struct fuse_bufvec end = FUSE_BUFVEC_INIT(1);
	char last = f->text.n ? f->text.p[f->text.n - 1] : '\0';
	int r;

	if (size <= n->told) {
		n->retried = false;
		return 0;
	}
	if (n->opens > 1) {
		/* Others have it open. One of its pages may be waiting for a read that we have not
		 * seen yet, and the store would wait for that page forever. But this is a text
		 * whose size stat reports, and it has grown since: -ESTALE makes the kernel look it
		 * up again. */
		n->retried = !n->retried;
		return n->retried ? -ESTALE : 0;
	}
	end.buf[0].mem = &last;
	r = fuse_lowlevel_notify_store(
	    session_fuse(), request_ino(n), (off_t)size - 1, &end, FUSE_BUF_NO_SPLICE);
	if (r < 0)
		debug("fuse", "the size of a file is not known to the kernel: %s", strerror(-r));
	else
		n->told = size;
	return 0;
}

static void
answer_open(struct request *c, int result)
{
	struct file *f = c->r.file;

	c->fi.fh = (uintptr_t)f;
	if (result == 0)
		result = tell_size(f);
	if (result < 0)
		request_error(c->fr, -result);
	else /* fails if the opener is gone: no release will come */
		result = fuse_reply_open(c->fr, &c->fi);
	if (result < 0)
		file_free(f);
}

void
file_answer_create(struct request *c, int result)
{
	struct file *f = c->r.file;
	struct fuse_entry_param e;

	c->fi.fh = (uintptr_t)f;
	if (result < 0) {
		request_error(c->fr, -result);
	} else {
		request_entry(c->created, &e);
		result = fuse_reply_create(c->fr, &e, &c->fi);
	}
	if (result < 0) {
		file_free(f);
		tree_forget(c->created, 1);
	}
}

static void
answer_read(struct request *c, int result)
{
	if (open_file_ends(c->r.file, result))
		fuse_reply_buf(c->fr, NULL, 0);
	else
		request_error(c->fr, -result);
}

void
file_open_node(struct request *c, struct node *n)
{
	pid_t opener = (c->fi.flags & O_ACCMODE) == O_RDONLY ? 0 : client_process(c->tid);
	int r;

	c->fi.direct_io = !(n->row->flags & ROW_MAPPED) || session_direct_mmap();
	c->fi.keep_cache = 0;
	n->seeker = -1;
	r = open_file_open(open_file_new(n, c->fi.flags, opener), &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

/* For a private node whose name the kernel caches: does another opener have it, so that the name
 * must be looked up again? A thread that has just looked it up is never sent back. */
static bool
is_taken(struct node *n, pid_t tid)
{
	const unsigned both = ROW_PRIVATE_NODE | ROW_CACHEABLE;

	return (n->row->flags & both) == both &&
	       (n->seeker == -1 ? n->opens > 0 : n->seeker != tid);
}

void
file_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = request_node(ino);
	struct request *c;

	request_show(fr, "open", n, NULL);
	if (is_taken(n, fuse_req_ctx(fr)->pid)) {
		request_error(fr, ESTALE);
		return;
	}
	/* the watchdog opens even read-only files for writing, to cause a CLOSE_WRITE event */
	if (request_by_watchdog(fr))
		fi->flags = O_RDONLY | O_PATH;
	c = request_new(fr, answer_open);
	c->fi = *fi;
	/* it gets what is there now, like a program that copies a tree */
	if (n->row->flags & ROW_LIVE && client_is_sftp(c->tid))
		c->fi.flags |= O_NOFOLLOW;
	file_open_node(c, n);
}

static struct file *
file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

/* Updates the flags of an open file: O_NONBLOCK may have changed since its open. */
static void
take_flags(struct file *f, const struct fuse_file_info *fi)
{
	f->flags = (f->flags & ~O_NONBLOCK) | (fi->flags & O_NONBLOCK);
	f->flags = open_file_flags(f);
}

void
file_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct request *c;

	request_show(fr, "read", f->node, NULL);
	if (open_file_gone(f)) {
		request_error(fr, ENODEV);
		return;
	}
	take_flags(f, fi);
	c = request_new(fr, answer_read);
	c->made_again = true;
	c->r.file = f;
	c->r.want = size;
	c->r.nonblock = f->flags & O_NONBLOCK;
	c->r.offset = (uint64_t)off;
	tree_read(f, &c->r);
}

static void
sync_file(struct request *c, struct file *f, int (*fn)(struct file *f, struct req *r))
{
	int r = open_file_sync(f, &c->r, fn);

	if (r != PARKED)
		req_done(&c->r, r);
}

static void
answer_write(struct request *c, int result)
{
	if (result < 0)
		request_error(c->fr, -result);
	else
		fuse_reply_write(c->fr, c->r.want);
}

void
file_write(
    fuse_req_t fr, fuse_ino_t ino, const char *p, size_t n, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct err e = {0};
	struct request *c;
	ssize_t r;

	request_show(fr, "write", f->node, NULL);
	take_flags(f, fi);
	if (f->opener)
		writer_note(f, fuse_req_ctx(fr)->pid);
	r = open_file_write(f, p, n, (uint64_t)off, &e);
	if (r >= 0 && !open_file_whole(f)) {
		fuse_reply_write(fr, (size_t)r);
		return;
	}
	c = request_new(fr, answer_write);
	if (r >= 0) {
		c->r.want = (size_t)r;
		sync_file(c, f, f->ops->complete);
		return;
	}
	c->r.file = f;
	c->r.err = e;
	c->r.on_done = f->ops ? f->ops->refused : NULL;
	req_done(&c->r, (int)r);
}

void
file_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	request_show(fr, "flush", f->node, NULL);
	lock_closed(ino, fi);
	sync_file(request_new(fr, NULL), f, f->ops ? f->ops->flush : NULL);
}

void
file_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	/* FSYNC carries no flags: those of the open or the last write still apply */
	request_show(fr, "fsync", f->node, NULL);
	sync_file(request_new(fr, NULL), f, f->ops ? f->ops->fsync : NULL);
}

void
file_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	request_show(fr, "release", request_node(ino), NULL);
	lock_released(ino, fi);
	file_free(file_of(fi));
	request_error(fr, 0);
}

void
file_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct file *f = file_of(fi);
	unsigned ready = EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;

	request_show(fr, "poll", f->node, NULL);
	if (ph) {
		if (f->poll_handle)
			fuse_pollhandle_destroy(f->poll_handle);
		f->poll_handle = ph;
		if (!f->polled)
			TAILQ_INSERT_TAIL(&polled, f, polled_link);
		f->polled = true;
	}
	if (!open_file_gone(f) && f->ops && f->ops->poll)
		ready = f->ops->poll(f);
	fuse_reply_poll(fr, ready);
}

void
file_wake_pollers(void)
{
	struct file *f, *next;

	/* nothing here answers a request, which could close another file */
	for (f = TAILQ_FIRST(&polled); f; f = next) {
		next = TAILQ_NEXT(f, polled_link);
		if (!open_file_gone(f) && f->ops && f->ops->poll && !f->ops->poll(f))
			continue;
		fuse_lowlevel_notify_poll(f->poll_handle);
		fuse_pollhandle_destroy(f->poll_handle);
		f->poll_handle = NULL;
		f->polled = false;
		TAILQ_REMOVE(&polled, f, polled_link);
	}
}
