/* The requests about names in directories: look up, list, make, remove, rename. */
#include "session/directory.h"
#include "group/group.h"
#include "group/journal.h"
#include "group/registry.h"
#include "host/ticks.h"
#include "proc.h"
#include "session/file.h"
#include "session/request.h"
#include "tree/removal.h"
#include "tree/staged_file.h"
#include "tree/var_change.h"
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

/* A directory where variables live? */
static bool
holds_variables(const struct node *dir)
{
	return dir->row->flags & ROW_VARIABLES;
}

static struct node *
named_node(const struct node *dir, const char *part, const char *name)
{
	struct place at = dir->at;

	place_ref(&at);
	at.name = xstrdup(name);
	return tree_node(tree_child(dir->row, part), at);
}

static struct node *
var_node(const struct node *dir, const char *name)
{
	return named_node(dir, "NAME", name);
}

static struct node *
staged_node(const struct node *dir, const char *name)
{
	staged_make(&dir->at, name);
	return named_node(dir, "STAGED", name);
}

/* The watchdog looks for what it is to create (which must not be there) or to delete (which must).
 */
static bool
watchdog_lookup(fuse_req_t fr, struct node *dir, const char *name)
{
	char *path = child_path(dir, name);
	bool made = ticks_expects(TICK_CREATE, path, false);
	bool gone = ticks_expects(TICK_DELETE, path, false);

	free(path);
	if (made)
		fuse_reply_err(fr, ENOENT);
	else if (gone)
		reply_entry(fr, var_node(dir, name));
	return made || gone;
}

static void
answer_lookup(struct request *c, int result)
{
	if (result == 0) {
		reply_entry(c->fr, c->created);
		return;
	}
	tree_forget(c->created, 1);
	fuse_reply_err(c->fr, -result);
}

/* The rank itself is asked whether it has a variable of this name. */
static void
ask_for_name(fuse_req_t fr, struct node *dir, const char *name)
{
	struct request *c = request_new(fr, answer_lookup);
	int r;

	c->created = var_node(dir, name);
	r = var_names_ask(&c->created->at, &c->r);
	if (r != PARKED)
		req_done(&c->r, r);
}

void
directory_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = request_node(parent), *n;
	int error;

	request_show(fr, "lookup", dir, name);
	if (request_by_watchdog(fr) && holds_variables(dir) && watchdog_lookup(fr, dir, name))
		return;
	n = tree_lookup(dir, name, &error);
	if (n)
		reply_entry(fr, n);
	else if (error == -ENOENT && holds_variables(dir) && !request_by_watchdog(fr) &&
		 var_names_may_ask(&dir->at, name))
		ask_for_name(fr, dir, name);
	else
		fuse_reply_err(fr, -error);
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

/* What was read of an open directory: an offset is a place in it, and stays one. Entries are made
 * when they are asked for. */
struct listing {
	struct tree_cursor cursor;
	struct buf names; /* with their NUL */

	struct listed {
		size_t name; /* where in names */
		uint64_t ino;
		mode_t type;
	} * entries;

	size_t n, room;
	TAILQ_ENTRY(listing) link;
};

static TAILQ_HEAD(, listing) listings = TAILQ_HEAD_INITIALIZER(listings);

/* The i-th entry; false: there are not so many. */
static bool
listing_reach(struct listing *l, size_t i)
{
	struct dir_entry e;

	while (l->n <= i) {
		if (!tree_next(&l->cursor, &e))
			return false;
		if (l->n == l->room) {
			l->room = MAX(l->room * 2, (size_t)32);
			l->entries = xrealloc(l->entries, l->room * sizeof(*l->entries));
		}
		l->entries[l->n++] = (struct listed){l->names.n, e.ino, e.type};
		buf_add(&l->names, e.name, strlen(e.name) + 1);
	}
	return true;
}

/* rewinddir(3) shows what is there now. */
static void
listing_rewind(struct listing *l)
{
	struct node *dir = l->cursor.dir;

	tree_cursor_free(&l->cursor);
	l->cursor = (struct tree_cursor){.dir = dir};
	buf_clear(&l->names);
	l->n = 0;
}

static void
listing_free(struct listing *l)
{
	TAILQ_REMOVE(&listings, l, link);
	tree_cursor_free(&l->cursor);
	buf_free(&l->names);
	free(l->entries);
	free(l);
}

void
directory_fini(void)
{
	struct listing *l;

	while ((l = TAILQ_FIRST(&listings)))
		listing_free(l);
}

void
directory_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct listing *l;
	struct node *n = request_node(ino);

	request_show(fr, "opendir", n, NULL);
	if (place_gone(&n->at)) {
		fuse_reply_err(fr, ENODEV);
		return;
	}
	l = xcalloc(1, sizeof(*l));
	l->cursor.dir = n;
	TAILQ_INSERT_TAIL(&listings, l, link);
	fi->fh = (uintptr_t)l;
	if (fuse_reply_open(fr, fi) < 0)
		listing_free(l); /* the opener is gone: no releasedir will come */
}

void
directory_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	static const char *const dots[] = {".", ".."};
	struct listing *l = (struct listing *)(uintptr_t)fi->fh;
	char *space = xmalloc(size);
	size_t used = 0, at = (size_t)off;

	if (off == 0)
		listing_rewind(l);
	for (; at < ARRAY_LEN(dots) || listing_reach(l, at - ARRAY_LEN(dots)); at++) {
		struct stat st = {.st_ino = FUSE_ROOT_ID, .st_mode = S_IFDIR};
		const char *name;
		size_t n;

		if (at < ARRAY_LEN(dots)) {
			name = dots[at];
		} else {
			const struct listed *e = &l->entries[at - ARRAY_LEN(dots)];

			name = l->names.p + e->name;
			st.st_ino = e->ino;
			st.st_mode = e->type;
		}
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
	fuse_reply_err(fr, 0);
}

void
directory_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *dir = request_node(parent), *n;
	struct err e = {0};
	int r = -EACCES;

	request_show(fr, "mkdir", dir, name);
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

void
directory_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = request_node(parent);
	struct group *g = dir == tree_root() ? group_find(name) : NULL;
	struct err e = {0};
	int r = dir == tree_root() ? -ENOENT : -EACCES;

	request_show(fr, "rmdir", dir, name);
	if (g && (r = group_remove(g, &e)) < 0)
		journal_fail(g, &e, "rmdir");
	fuse_reply_err(fr, -r);
}

void
directory_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct node *dir = request_node(parent);
	char *path = child_path(dir, name);

	if (request_by_watchdog(fr) && holds_variables(dir) &&
	    ticks_expects(TICK_CREATE, path, true))
		reply_entry(fr, var_node(dir, name));
	else
		fuse_reply_err(fr, EACCES);
	free(path);
}

static pid_t
process_of(fuse_req_t fr)
{
	struct proc_status s;
	pid_t thread = fuse_req_ctx(fr)->pid;

	return thread && proc_status(thread, &s) == 0 ? s.process : thread;
}

/* In a vars directory: a staged file, else the variable of that name. */
static int
remove_entry(const struct place *at, pid_t process, struct err *e)
{
	return staged_remove(at) == 0 ? 0 : var_change_remove(at, process, e);
}

static int
rename_entry(const struct place *from, const struct place *to, struct err *e)
{
	return staged_concerns(from, to) ? staged_rename(from, to, e)
					 : var_change_rename(from, to, e);
}

void
directory_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct node *dir = request_node(parent);
	char *path = child_path(dir, name);
	pid_t process = process_of(fr);
	struct place at = dir->at;
	struct err e = {0};
	int r = -EACCES;

	request_show(fr, "unlink", dir, name);
	at.name = xstrdup(name);
	if (request_by_watchdog(fr))
		r = ticks_expects(TICK_DELETE, path, true) ? 0 : -ENOENT;
	else if (place_gone(&dir->at))
		r = place_fail(&dir->at, &e);
	else if (holds_variables(dir))
		r = remove_entry(&at, process, &e);
	else
		removal_refused(process, &dir->at);
	if (r < 0)
		request_fail(fr, dir, name, r, &e);
	else
		fuse_reply_err(fr, 0);
	free(at.name);
	free(path);
}

void
directory_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
    const char *to, unsigned flags)
{
	struct node *dir = request_node(parent), *to_dir = request_node(to_parent);
	struct place a = dir->at, b = to_dir->at;
	struct err e = {0};
	int r = -EACCES;

	request_show(fr, "rename", dir, name);
	a.name = xstrdup(name);
	b.name = xstrdup(to);
	if (place_gone(&dir->at))
		r = place_fail(&dir->at, &e);
	else if (place_gone(&to_dir->at))
		r = place_fail(&to_dir->at, &e);
	else if (holds_variables(dir) && holds_variables(to_dir))
		r = flags ? -EINVAL : rename_entry(&a, &b, &e);
	if (r < 0)
		request_fail(fr, dir, name, r, &e);
	else
		fuse_reply_err(fr, 0);
	free(a.name);
	free(b.name);
}

void
directory_symlink(fuse_req_t fr, const char *link, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(fr, EACCES);
}

void
directory_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(fr, EACCES);
}

void
directory_create(
    fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct node *dir = request_node(parent);
	struct var_name v;
	struct err e = {0};
	struct request *c;
	bool staged;
	int r = 0;

	request_show(fr, "create", dir, name);
	if (!holds_variables(dir)) {
		fuse_reply_err(fr, EACCES);
		return;
	}
	staged = staged_wants(name, fi->flags, mode);
	if (place_gone(&dir->at))
		r = place_fail(&dir->at, &e);
	else if (!staged)
		r = var_parse(name, dir->at.rank < 0, &v, &e);
	if (r < 0) {
		request_fail(fr, dir, name, r, &e);
		return;
	}
	c = request_new(fr, file_answer_create);
	c->fi = *fi;
	c->fi.flags |= O_TRUNC;
	c->created = staged ? staged_node(dir, name) : var_node(dir, name);
	file_open_node(c, c->created);
}
