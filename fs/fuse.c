/* The only file that knows FUSE: requests in, struct req through the tree, replies out. */
#define FUSE_USE_VERSION 312
#include "fuse.h"
#include "call.h"
#include "copy.h"
#include "daemon.h"
#include "group.h"
#include "live.h"
#include "notify.h"
#include "staged.h"
#include "vars.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static TAILQ_HEAD(, file) files = TAILQ_HEAD_INITIALIZER(files);

static struct node *
node_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? tree_root() : (struct node *)(uintptr_t)ino;
}

static bool
is_warden(fuse_req_t fr)
{
	return fuse_req_ctx(fr)->pid == notify_warden();
}

static void
show(fuse_req_t fr, const char *op, const struct node *n, const char *name)
{
	struct buf b = {0};

	if (!live_tracing() || is_warden(fr) || n->row->ops == &live_trace_ops)
		return;
	tree_path(n, &b);
	live_trace("fuse %s %s%s%s pid=%d", op, b.n ? b.p : "/", name ? " " : "", name ? name : "",
	    (int)fuse_req_ctx(fr)->pid);
	buf_free(&b);
}

/* A failure with a text goes to the group's `error`. */
static void
fail_at(fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e)
{
	struct buf b = {0};

	if (e && e->text[0] && n->at.g) {
		tree_path(n, &b);
		if (name)
			buf_addf(&b, "/%s", name);
		group_fail(n->at.g, e, b.p);
		buf_free(&b);
	}
	fuse_reply_err(fr, -result);
}

static void
entry_of(struct node *n, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){.ino = (fuse_ino_t)(uintptr_t)n, .generation = n->generation};
	tree_stat(n, &e->attr);
}

static void
reply_entry(fuse_req_t fr, struct node *n)
{
	struct fuse_entry_param e;

	entry_of(n, &e);
	if (fuse_reply_entry(fr, &e) < 0)
		tree_forget(n, 1);
}

static char *
child_path(const struct node *dir, const char *name)
{
	struct buf b = {0};

	tree_path(dir, &b);
	buf_addf(&b, "%s%s", b.n ? "/" : "", name);
	return buf_take(&b);
}

/* The directories where variables live. */
static const struct row *
var_row_of(const struct node *dir)
{
	if (strcmp(dir->row->path, "G/vars") == 0)
		return tree_row("G/vars/NAME");
	if (strcmp(dir->row->path, "G/rankK/vars") == 0)
		return tree_row("G/rankK/vars/NAME");
	return NULL;
}

static struct node *
var_node(const struct node *dir, const char *name)
{
	struct place at = dir->at;

	place_ref(&at);
	at.name = xstrdup(name);
	return tree_node(var_row_of(dir), at);
}

static struct node *
staged_node(const struct node *dir, const char *name)
{
	struct place at = dir->at;

	place_ref(&at);
	at.name = xstrdup(name);
	staged_make(&at, name);
	return tree_node(tree_row(at.rank < 0 ? "G/vars/STAGED" : "G/rankK/vars/STAGED"), at);
}

/* The warden looks for what it is to create (which must not be there) or to delete (which must). */
static bool
warden_lookup(fuse_req_t fr, struct node *dir, const char *name)
{
	char *path = child_path(dir, name);
	bool made = notify_expects(NOTICE_CREATE, path, false);
	bool gone = notify_expects(NOTICE_DELETE, path, false);

	free(path);
	if (made)
		fuse_reply_err(fr, ENOENT);
	else if (gone)
		reply_entry(fr, var_node(dir, name));
	return made || gone;
}

static void
op_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = node_of(parent), *n;
	int error;

	show(fr, "lookup", dir, name);
	if (is_warden(fr) && var_row_of(dir) && warden_lookup(fr, dir, name))
		return;
	n = tree_lookup(dir, name, &error);
	if (n)
		reply_entry(fr, n);
	else
		fuse_reply_err(fr, -error);
}

static void
op_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n)
{
	tree_forget(node_of(ino), n);
	fuse_reply_none(fr);
}

static void
op_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		tree_forget(node_of(forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(fr);
}

static void
op_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	show(fr, "getattr", node_of(ino), NULL);
	tree_stat(node_of(ino), &st);
	fuse_reply_attr(fr, &st, 0);
}

static void
op_setattr(fuse_req_t fr, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct node *n = node_of(ino);
	struct file *f = fi ? (struct file *)(uintptr_t)fi->fh : NULL;
	struct err e = {0};
	struct stat st;
	int r = 0;

	show(fr, "setattr", n, NULL);
	if ((to_set & FUSE_SET_ATTR_SIZE) && S_ISREG(n->row->mode)) {
		if (n->row->ops && n->row->ops->truncate)
			r = n->row->ops->truncate(&n->at, f, (uint64_t)attr->st_size, &e);
		else if (!(n->row->mode & 0200))
			r = fail(&e, EACCES, "can be read only");
	}
	if (is_warden(fr))
		n->mtime = now_wall();
	/* modes, owners and times are ours: editors and cp -p may set them without effect */
	if (r < 0) {
		fail_at(fr, n, NULL, r, &e);
		return;
	}
	tree_stat(n, &st);
	fuse_reply_attr(fr, &st, 0);
}

static void
op_readlink(fuse_req_t fr, fuse_ino_t ino)
{
	struct node *n = node_of(ino);
	struct buf b = {0};
	struct err e = {0};

	show(fr, "readlink", n, NULL);
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
call_opened(struct call *c, int result)
{
	struct file *f = c->r.file;

	c->fi.fh = (uintptr_t)f;
	if (result < 0) {
		file_free(f);
		if (c->kind == CALL_CREATE)
			tree_forget(c->created, 1);
		fuse_reply_err(c->fr, -result);
		return;
	}
	if (c->kind == CALL_OPEN)
		result = fuse_reply_open(c->fr, &c->fi);
	else {
		struct fuse_entry_param e;

		entry_of(c->created, &e);
		result = fuse_reply_create(c->fr, &e, &c->fi);
	}
	if (result < 0) { /* the opener is gone: no release will come */
		file_free(f);
		if (c->kind == CALL_CREATE)
			tree_forget(c->created, 1);
	}
}

static void
open_node(struct call *c, struct node *n)
{
	struct file *f = xcalloc(1, sizeof(*f));
	int r;

	*f = (struct file){.node = n, .flags = c->fi.flags, .opener = req_process(&c->r)};
	TAILQ_INSERT_TAIL(&files, f, link);
	c->r.file = f;
	c->fi.direct_io = !(n->row->flags & ROW_MAPPED) || call_direct_mmap();
	c->fi.keep_cache = 0;
	if (n->at.g && n->at.g->gone)
		r = -ENODEV;
	else
		r = tree_open(f, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

static void
op_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = node_of(ino);
	struct call *c;

	show(fr, "open", n, NULL);
	/* a tick for CLOSE_WRITE on a file that nobody may write */
	if (is_warden(fr))
		fi->flags = (fi->flags & ~O_ACCMODE) | O_RDONLY;
	c = call_new(fr, CALL_OPEN);
	c->fi = *fi;
	open_node(c, n);
}

static void
op_create(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct node *dir = node_of(parent);
	struct var_name v;
	struct err e = {0};
	struct call *c;
	bool staged;

	show(fr, "create", dir, name);
	if (!var_row_of(dir)) {
		fuse_reply_err(fr, EACCES);
		return;
	}
	staged = staged_wants(name, fi->flags, mode);
	if (dir->at.g->gone || (!staged && var_parse(name, dir->at.rank < 0, &v, &e) < 0)) {
		fail_at(fr, dir, name, dir->at.g->gone ? -ENODEV : -e.no, &e);
		return;
	}
	c = call_new(fr, CALL_CREATE);
	c->fi = *fi;
	c->fi.flags |= O_TRUNC;
	c->created = staged ? staged_node(dir, name) : var_node(dir, name);
	open_node(c, c->created);
}

static struct file *
file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

static bool
gone(const struct file *f)
{
	return f->node->at.g && f->node->at.g->gone;
}

static void
op_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct call *c;

	show(fr, "read", f->node, NULL);
	if (gone(f)) {
		fuse_reply_err(fr, ENODEV);
		return;
	}
	f->flags = (f->flags & ~O_NONBLOCK) | (fi->flags & O_NONBLOCK);
	c = call_new(fr, CALL_READ);
	c->r.file = f;
	c->r.want = size;
	c->r.offset = (uint64_t)off;
	tree_read(f, &c->r);
}

static void
op_write(fuse_req_t fr, fuse_ino_t ino, const char *p, size_t n, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct err e = {0};
	ssize_t r = -ENODEV;

	show(fr, "write", f->node, NULL);
	f->flags = (f->flags & ~O_NONBLOCK) | (fi->flags & O_NONBLOCK);
	if (!gone(f))
		r = f->ops && f->ops->write ? f->ops->write(f, p, n, (uint64_t)off, &e) : -EACCES;
	if (r < 0)
		fail_at(fr, f->node, NULL, (int)r, &e);
	else
		fuse_reply_write(fr, (size_t)r);
}

static void
sync_file(fuse_req_t fr, struct file *f, int (*fn)(struct file *f, struct req *r))
{
	struct call *c;
	int r;

	if (!fn || gone(f)) {
		fuse_reply_err(fr, fn && gone(f) ? ENODEV : 0);
		return;
	}
	c = call_new(fr, CALL_SYNC);
	c->r.file = f;
	r = fn(f, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

static void
op_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	show(fr, "flush", f->node, NULL);
	sync_file(fr, f, f->ops ? f->ops->flush : NULL);
}

static void
op_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	/* the flags of the open or the last write hold: FSYNC brings none */
	show(fr, "fsync", f->node, NULL);
	sync_file(fr, f, f->ops ? f->ops->fsync : NULL);
}

static void
op_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	show(fr, "release", node_of(ino), NULL);
	file_free(file_of(fi));
	fuse_reply_err(fr, 0);
}

static void
op_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct file *f = file_of(fi);
	unsigned ready = EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;

	show(fr, "poll", f->node, NULL);
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
fuse_wake_pollers(void)
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

/* ---- directories ---- */

struct listing {
	struct node *dir;
	struct buf names; /* type char, name, NUL */
	size_t *at;       /* where each begins */
	uint64_t *ino;
	size_t n;
};

static void
list(struct listing *l)
{
	char name[300];
	mode_t type;
	size_t room = 0;

	buf_clear(&l->names);
	l->n = 0;
	free(l->at);
	free(l->ino);
	l->at = NULL;
	l->ino = NULL;
	for (size_t i = 0; tree_entry(l->dir, i, name, sizeof(name), &type); i++) {
		int error;
		struct node *n = tree_lookup(l->dir, name, &error);

		if (l->n == room) {
			room = MAX(room * 2, (size_t)32);
			l->at = xrealloc(l->at, room * sizeof(*l->at));
			l->ino = xrealloc(l->ino, room * sizeof(*l->ino));
		}
		l->at[l->n] = l->names.n;
		l->ino[l->n++] = n ? n->ino : 2;
		if (n)
			tree_forget(n, 1);
		buf_addc(&l->names, S_ISDIR(type) ? 'd' : S_ISLNK(type) ? 'l' : '-');
		buf_add(&l->names, name, strlen(name) + 1);
	}
}

static void
op_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct listing *l;
	struct node *n = node_of(ino);

	show(fr, "opendir", n, NULL);
	if (n->at.g && n->at.g->gone) {
		fuse_reply_err(fr, ENODEV);
		return;
	}
	l = xcalloc(1, sizeof(*l));
	l->dir = n;
	list(l);
	fi->fh = (uintptr_t)l;
	fuse_reply_open(fr, fi);
}

static void
op_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	static const char *const dots[] = {".", ".."};
	struct listing *l = (struct listing *)(uintptr_t)fi->fh;
	char *space = xmalloc(size);
	size_t used = 0;

	if (off == 0)
		list(l); /* rewinddir(3) shows what is there now */
	for (size_t i = (size_t)off; i < l->n + 2; i++) {
		const char *entry = i < 2 ? dots[i] : l->names.p + l->at[i - 2] + 1;
		char kind = i < 2 ? 'd' : entry[-1];
		struct stat st = {.st_ino = i < 2 ? 1 : l->ino[i - 2],
		    .st_mode = kind == 'd' ? S_IFDIR : kind == 'l' ? S_IFLNK : S_IFREG};
		size_t n = fuse_add_direntry(fr, space + used, size - used, entry, &st, (off_t)i + 1);

		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(fr, space, used);
	free(space);
}

static void
op_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct listing *l = (struct listing *)(uintptr_t)fi->fh;

	buf_free(&l->names);
	free(l->at);
	free(l->ino);
	free(l);
	fuse_reply_err(fr, 0);
}

static void
op_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *dir = node_of(parent), *n;
	struct err e = {0};
	int r = -EACCES;

	show(fr, "mkdir", dir, name);
	if (dir == tree_root())
		r = group_make(name, &e);
	n = r == 0 ? tree_lookup(dir, name, &r) : NULL;
	if (n) {
		reply_entry(fr, n);
		return;
	}
	if (e.text[0])
		note("mkdir %s: %s", name, e.text);
	fuse_reply_err(fr, -r);
}

static void
op_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = node_of(parent);
	struct group *g = dir == tree_root() ? group_find(name) : NULL;
	struct err e = {0};
	int r = dir == tree_root() ? -ENOENT : -EACCES;

	show(fr, "rmdir", dir, name);
	if (g && (r = group_remove(g, &e)) < 0)
		group_fail(g, &e, "rmdir");
	fuse_reply_err(fr, -r);
}

static void
op_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct node *dir = node_of(parent);
	char *path = child_path(dir, name);

	if (is_warden(fr) && var_row_of(dir) && notify_expects(NOTICE_CREATE, path, true))
		reply_entry(fr, var_node(dir, name));
	else
		fuse_reply_err(fr, EACCES);
	free(path);
}

static void
op_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = node_of(parent);
	char *path = child_path(dir, name);
	struct place at = dir->at;
	struct err e = {0};
	int r = -EACCES;

	show(fr, "unlink", dir, name);
	at.name = xstrdup(name);
	if (is_warden(fr) && notify_expects(NOTICE_DELETE, path, true))
		r = 0;
	else if (var_row_of(dir) && !dir->at.g->gone)
		r = var_remove(&at, &e);
	if (r < 0)
		fail_at(fr, dir, name, r, &e);
	else
		fuse_reply_err(fr, 0);
	free(at.name);
	free(path);
}

static void
op_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t to_parent, const char *to,
    unsigned flags)
{
	struct node *dir = node_of(parent), *to_dir = node_of(to_parent);
	struct place a = dir->at, b = to_dir->at;
	struct err e = {0};
	int r = -EACCES;

	show(fr, "rename", dir, name);
	a.name = xstrdup(name);
	b.name = xstrdup(to);
	if (var_row_of(dir) && var_row_of(to_dir) && !dir->at.g->gone)
		r = flags ? -EINVAL : var_rename(&a, &b, &e);
	if (r < 0)
		fail_at(fr, dir, name, r, &e);
	else
		fuse_reply_err(fr, 0);
	free(a.name);
	free(b.name);
}

static void
op_symlink(fuse_req_t fr, const char *link, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(fr, EACCES);
}

static void
op_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(fr, EACCES);
}

static void
op_statfs(fuse_req_t fr, fuse_ino_t ino)
{
	struct statvfs st = {.f_bsize = 1 << 20, .f_frsize = 4096, .f_namemax = 255};

	fuse_reply_statfs(fr, &st);
}

const struct fuse_lowlevel_ops fuse_ops = {
    .init = call_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .fsync = op_fsync,
    .release = op_release,
    .poll = op_poll,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .statfs = op_statfs,
};
