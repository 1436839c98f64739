/* FUSE requests about names in directories: look up, list, create, remove, rename. */
#include "session/directory.h"
#include "base/ahead.h"
#include "base/daemon.h"
#include "front/entry.h"
#include "front/listing.h"
#include "host/ticks.h"
#include "proc.h"
#include "session/file.h"
#include "session/request.h"
#include "tree/var_names.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static void
reply_entry(fuse_req_t fr, struct node *n)
{
	struct fuse_entry_param e;

	request_entry(n, &e);
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

/* The watchdog looks up the names that it is about to create (they must not exist) or to delete
 * (they must). */
static bool
watchdog_lookup(fuse_req_t fr, struct node *dir, const char *name)
{
	char *path = child_path(dir, name);
	bool made = ticks_expects(TICK_CREATE, path, false);
	bool gone = ticks_expects(TICK_DELETE, path, false);

	free(path);
	if (made)
		request_error(fr, ENOENT);
	else if (gone)
		reply_entry(fr, entry_var(dir, name));
	return made || gone;
}

static void
answer_lookup(struct request *c, int result)
{
	if (result == 0) {
		reply_entry(c->fr, tree_looked_up(c->created, c->tid));
		return;
	}
	tree_forget(c->created, 1);
	request_error(c->fr, -result);
}

/* Asks the rank itself whether it has a variable of this name. */
static void
ask_for_name(fuse_req_t fr, struct node *dir, const char *name)
{
	struct node *n = entry_var(dir, name);
	struct request *c;
	int r;

	if (var_names_known(&n->at)) {
		reply_entry(fr, tree_looked_up(n, fuse_req_ctx(fr)->pid));
		return;
	}
	ahead_expire();
	c = request_new(fr, answer_lookup);
	c->created = n;
	r = entry_ask(n, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

void
directory_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = request_node(parent), *n;
	int error;

	request_show(fr, "lookup", dir, name);
	if (request_by_watchdog(fr) && entry_in_vars(dir) && watchdog_lookup(fr, dir, name))
		return;
	n = tree_lookup(dir, name, &error);
	if (!n && error == -ENOENT && !request_by_watchdog(fr) && entry_may_ask(dir, name)) {
		ask_for_name(fr, dir, name);
		return;
	}
	ahead_expire();
	if (n)
		reply_entry(fr, tree_looked_up(n, fuse_req_ctx(fr)->pid));
	else
		request_error(fr, -error);
}

void
directory_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n)
{
	tree_forget(request_node(ino), n);
	fuse_reply_none(fr);
}

void
directory_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		tree_forget(request_node(forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(fr);
}

static void
answer_opendir(struct request *c, int result)
{
	struct listing *l = (struct listing *)(uintptr_t)c->fi.fh;

	if (result < 0)
		request_error(c->fr, -result);
	else /* fails if the opener is gone: no releasedir will come */
		result = fuse_reply_open(c->fr, &c->fi);
	if (result < 0)
		listing_free(l);
}

void
directory_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct request *c;
	struct node *n = request_node(ino);
	int r;

	request_show(fr, "opendir", n, NULL);
	if (place_gone(&n->at)) {
		request_error(fr, ENODEV);
		return;
	}
	c = request_new(fr, answer_opendir);
	c->fi = *fi;
	c->fi.fh = (uintptr_t)listing_new(n);
	r = listing_open((struct listing *)(uintptr_t)c->fi.fh, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

void
directory_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	static const char *const dots[] = {".", ".."};
	struct listing *l = (struct listing *)(uintptr_t)fi->fh;
	char *space = xmalloc(size);
	size_t used = 0, at = (size_t)off, last = at + LISTING_MAX;

	if (off == 0)
		listing_rewind(l);
	for (; at < last; at++) {
		struct stat st = {.st_ino = FUSE_ROOT_ID, .st_mode = S_IFDIR};
		const char *name = at < ARRAY_LEN(dots) ? dots[at]
							: listing_entry(l, at - ARRAY_LEN(dots),
							      &st.st_ino, &st.st_mode);
		size_t n;

		if (!name)
			break;
		n = fuse_add_direntry(fr, space + used, size - used, name, &st, (off_t)at + 1);
		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(fr, space, used);
	free(space);
}

void
directory_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	listing_free((struct listing *)(uintptr_t)fi->fh);
	request_error(fr, 0);
}

void
directory_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *dir = request_node(parent), *n;
	struct err e = {0};
	int r;

	request_show(fr, "mkdir", dir, name);
	r = entry_make_dir(dir, name, &e);
	n = r == 0 ? tree_lookup(dir, name, &r) : NULL;
	if (n)
		reply_entry(fr, n);
	else
		request_error(fr, -r);
}

/* The directory of a removed group. What was in use there at the rmdir, by the watchdog for one,
 * the kernel would remember until its memory runs short, and with it we the nodes. */
struct removed {
	struct node *dir; /* with a lookup of ours */
	struct buf names; /* that the kernel had looked up in it, each with its NUL */
	struct timer *timer;
	TAILQ_ENTRY(removed) link;
};

static TAILQ_HEAD(, removed) removed = TAILQ_HEAD_INITIALIZER(removed);

enum { IN_USE_MS = 1000 }; /* what takes longer waits for somebody */

static void
removed_free(struct removed *d)
{
	TAILQ_REMOVE(&removed, d, link);
	loop_timer_del(d->timer);
	tree_forget(d->dir, 1);
	buf_free(&d->names);
	free(d);
}

/* Has the kernel forget. It takes the lock of the directory, which nobody holds who waits for us:
 * in a removed directory the kernel itself refuses what takes it. */
static void
forget_entries(void *arg)
{
	struct removed *d = arg;
	const char *end = d->names.p + d->names.n;

	d->timer = NULL;
	for (const char *name = d->names.p; name < end; name += strlen(name) + 1)
		fuse_lowlevel_notify_inval_entry(
		    session_fuse(), request_ino(d->dir), name, strlen(name));
	removed_free(d);
}

void
directory_fini(void)
{
	while (!TAILQ_EMPTY(&removed))
		removed_free(TAILQ_FIRST(&removed));
}

/* Takes over a lookup of dir. */
static void
forget_later(struct node *dir, struct buf names)
{
	struct removed *d = xmalloc(sizeof(*d));

	*d = (struct removed){.dir = dir, .names = names};
	d->timer = loop_timer(daemon_.loop, IN_USE_MS, forget_entries, d);
	TAILQ_INSERT_TAIL(&removed, d, link);
}

void
directory_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = request_node(parent), *n;
	struct buf names = {0};
	struct err e = {0};
	int r;

	request_show(fr, "rmdir", dir, name);
	n = tree_lookup(dir, name, &r);
	if (n) {
		tree_children(n, &names);
		r = entry_remove_dir(dir, name, &e);
	}
	request_error(fr, -r);
	if (r == 0) {
		forget_later(n, names);
	} else {
		tree_forget(n, 1);
		buf_free(&names);
	}
}

void
directory_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct node *dir = request_node(parent);
	char *path = child_path(dir, name);

	if (request_by_watchdog(fr) && entry_in_vars(dir) && ticks_expects(TICK_CREATE, path, true))
		reply_entry(fr, entry_var(dir, name));
	else
		request_error(fr, EACCES);
	free(path);
}

static pid_t
process_of(fuse_req_t fr)
{
	struct proc_status s;
	pid_t thread = fuse_req_ctx(fr)->pid;

	return thread && proc_status(thread, &s) == 0 ? s.process : thread;
}

void
directory_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = request_node(parent);
	char *path = child_path(dir, name);
	struct err e = {0};
	int r;

	request_show(fr, "unlink", dir, name);
	if (request_by_watchdog(fr))
		r = ticks_expects(TICK_DELETE, path, true) ? 0 : -ENOENT;
	else
		r = entry_remove(dir, name, process_of(fr), &e);
	request_error(fr, -r);
	free(path);
}

void
directory_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
    const char *to, unsigned flags)
{
	struct node *dir = request_node(parent), *to_dir = request_node(to_parent);
	struct err e = {0};

	request_show(fr, "rename", dir, name);
	if (flags && entry_in_vars(dir) && entry_in_vars(to_dir))
		request_error(fr, EINVAL);
	else
		request_error(fr, -entry_rename(dir, name, to_dir, to, &e));
}

void
directory_symlink(fuse_req_t fr, const char *link, fuse_ino_t parent, const char *name)
{
	request_error(fr, EACCES);
}

void
directory_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	request_error(fr, EACCES);
}

void
directory_create(
    fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct node *dir = request_node(parent);
	struct err e;
	struct request *c;
	struct node *n;

	request_show(fr, "create", dir, name);
	n = entry_create(dir, name, fi->flags, mode, &e);
	if (!n) {
		request_error(fr, e.no);
		return;
	}
	c = request_new(fr, file_answer_create);
	c->fi = *fi;
	c->fi.flags |= O_TRUNC;
	c->created = n;
	file_open_node(c, n);
}
