/* Messages about names: walk, remove, rename, create. */
#include "front/entry.h"
#include "ninep/ops.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { REMOVE_DIR = 0x200 }; /* a flag of unlinkat in 9P2000.L */

/* ---- walk ---- */

/* The directory of n, its lookup count incremented, and n's name there, which the caller frees. For
 * the root these are the root itself and NULL. Returns NULL if the directory no longer exists. */
static struct node *
parent_of(const struct node *n, char **name)
{
	struct node *dir = fid_node(tree_root()), *child;
	struct buf path = {0};
	char *part, *slash;

	*name = NULL;
	tree_path(n, &path);
	for (part = path.n ? path.p : NULL; part && (slash = strchr(part, '/')); part = slash + 1) {
		*slash = '\0';
		child = dir ? entry_known(dir, part) : NULL;
		if (dir)
			tree_forget(dir, 1);
		dir = child;
	}
	if (dir && part)
		*name = xstrdup(part);
	buf_free(&path);
	return dir;
}

/* One step of a walk. Returns 0, -errno or, with w->asked set, the result of entry_ask(). */
static int
step(struct call *c, const char *name)
{
	struct walk *w = &c->walk;
	struct node *n;
	char *own;
	int error = -ENOENT;

	if (!S_ISDIR(w->node->row->mode))
		return -ENOTDIR;
	if (strcmp(name, "..") == 0) {
		n = parent_of(w->node, &own);
		free(own);
	} else {
		n = tree_lookup(w->node, name, &error);
	}
	if (!n && error == -ENOENT && entry_may_ask(w->node, name)) {
		w->asked = entry_var(w->node, name);
		return entry_ask(w->asked, &c->r);
	}
	if (!n)
		return error;
	tree_forget(w->node, 1);
	w->node = n;
	return 0;
}

static void
put_step(struct call *c)
{
	struct ninep_qid q = fid_qid(c->walk.node);

	ninep_put_qid(&c->body, &q);
	c->walk.done++;
}

/* The walk has ended. The new fid exists only if all names were found. */
static int
walked(struct call *c, int result)
{
	struct walk *w = &c->walk;
	struct node *n = w->node;
	char count[2] = {(char)w->done, 0};

	if (w->done < w->wanted && w->done == 0)
		return result;
	memcpy(c->body.p, count, sizeof(count));
	if (w->done < w->wanted)
		return 0;
	/* it may have been opened while the rank was asked */
	if (w->newfid == c->fid->number && fid_is_open(c->fid))
		return -EBADF;
	w->node = NULL;
	if (w->newfid != c->fid->number)
		return fid_add(&c->conn->fids, w->newfid, n);
	fid_move(c->fid, n);
	return 0;
}

static int go_on(struct call *c, int result);

/* The rank has answered whether it has the name. */
static int
asked(struct call *c, int result)
{
	struct walk *w = &c->walk;
	struct node *n = w->asked;

	w->asked = NULL;
	tree_forget(result == 0 ? w->node : n, 1);
	if (result == 0) {
		w->node = n;
		put_step(c);
	}
	return go_on(c, result);
}

static int
go_on(struct call *c, int result)
{
	struct walk *w = &c->walk;

	while (result == 0 && w->names.n) {
		char *name = ninep_part(ninep_name(&w->names));

		result = name ? step(c, name) : -ENOENT;
		free(name);
		if (w->asked) {
			c->finish = asked;
			return op_settle(c, result);
		}
		if (result == 0)
			put_step(c);
	}
	return walked(c, result);
}

int
op_walk(struct call *c, struct ninep_field *f)
{
	struct walk *w = &c->walk;

	if (call_take_fid(c, f[0].n) < 0 || c->fid->file)
		return -EBADF;
	w->newfid = (uint32_t)f[1].n;
	if (w->newfid == c->fid->number && fid_is_open(c->fid))
		return fail(&c->r.err, EBADF, "the fid is open");
	if (w->newfid != c->fid->number && fid_find(&c->conn->fids, w->newfid))
		return fail(&c->r.err, EBADF, "the new fid is in use");
	w->text = f[2].s.n ? xmalloc(f[2].s.n) : NULL;
	if (w->text)
		memcpy(w->text, f[2].s.p, f[2].s.n);
	w->names = (struct ninep_field){f[2].n, {w->text, f[2].s.n}};
	w->wanted = (unsigned)f[2].n;
	w->node = fid_node(c->fid->node);
	ninep_put(&c->body, 2, 0);
	return go_on(c, 0);
}

/* Kernels look a name up before they remove or rename it; programs that speak 9P themselves need
 * not. Returns -errno if there is no such variable. Leaves a name that only a busy rank may know to
 * the operation itself. */
static int
is_there(struct node *dir, const char *name)
{
	int error = 0;
	struct node *n;

	if (!entry_in_vars(dir) || place_gone(&dir->at))
		return 0;
	n = tree_lookup(dir, name, &error);
	if (!n)
		return error == -ENOENT && entry_may_ask(dir, name) ? 0 : error;
	tree_forget(n, 1);
	return 0;
}

/* ---- remove ---- */

int
op_remove(struct call *c, struct ninep_field *f)
{
	struct node *dir;
	char *name;
	int r;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	op_discard(c->fid);
	fid_drop(&c->conn->fids, c->fid);
	dir = parent_of(c->fid->node, &name);
	if (!dir || !name)
		r = dir ? -EACCES : -ENOENT;
	else if (S_ISDIR(c->fid->node->row->mode))
		r = entry_remove_dir(dir, name, &c->r.err);
	else
		r = entry_remove(dir, name, c->conn->peer, &c->r.err);
	if (dir)
		tree_forget(dir, 1);
	free(name);
	return r;
}

int
op_unlinkat(struct call *c, struct ninep_field *f)
{
	char *name = ninep_part(f[1].s);
	int r = -EINVAL;

	if (call_take_fid(c, f[0].n) < 0)
		r = -EBADF;
	else if (name && (f[2].n & REMOVE_DIR))
		r = entry_remove_dir(c->fid->node, name, &c->r.err);
	else if (name && (r = is_there(c->fid->node, name)) == 0)
		r = entry_remove(c->fid->node, name, c->conn->peer, &c->r.err);
	free(name);
	return r;
}

/* ---- rename ---- */

static int
rename_to(
    struct call *c, struct node *dir, const char *name, const struct node *to_dir, struct slice to)
{
	char *part = ninep_part(to);
	int r = part && name ? is_there(dir, name) : -EINVAL;

	if (r == 0)
		r = entry_rename(dir, name, to_dir, part, &c->r.err);
	free(part);
	return r;
}

int
op_rename(struct call *c, struct ninep_field *f)
{
	struct fid *to = fid_find(&c->conn->fids, (uint32_t)f[1].n);
	struct node *dir;
	char *name;
	int r = -ENOENT;

	if (call_take_fid(c, f[0].n) < 0 || !to)
		return -EBADF;
	dir = parent_of(c->fid->node, &name);
	if (dir)
		r = rename_to(c, dir, name, to->node, f[2].s);
	if (dir)
		tree_forget(dir, 1);
	free(name);
	return r;
}

int
op_renameat(struct call *c, struct ninep_field *f)
{
	struct fid *to = fid_find(&c->conn->fids, (uint32_t)f[2].n);
	char *name = ninep_part(f[1].s);
	int r = -EBADF;

	if (call_take_fid(c, f[0].n) == 0 && to)
		r = rename_to(c, c->fid->node, name, to->node, f[3].s);
	free(name);
	return r;
}

int
op_rename_in_place(struct call *c, struct slice to)
{
	char *name;
	struct node *dir = parent_of(c->fid->node, &name);
	int r = dir ? rename_to(c, dir, name, dir, to) : -ENOENT;

	if (dir)
		tree_forget(dir, 1);
	free(name);
	return r;
}

/* ---- make ---- */

int
op_mkdir(struct call *c, struct ninep_field *f)
{
	char *name = ninep_part(f[1].s);
	struct node *n = NULL;
	struct ninep_qid q;
	int r = call_take_fid(c, f[0].n) < 0 ? -EBADF : -EINVAL;

	if (c->fid && name) {
		r = entry_make_dir(c->fid->node, name, &c->r.err);
		n = r == 0 ? tree_lookup(c->fid->node, name, &r) : NULL;
	}
	free(name);
	if (!n)
		return r;
	q = fid_qid(n);
	ninep_put_qid(&c->body, &q);
	tree_forget(n, 1);
	return 0;
}

int
op_symlink(struct call *c, struct ninep_field *f)
{
	return -EACCES;
}

int
op_mknod(struct call *c, struct ninep_field *f)
{
	return -EACCES;
}

int
op_link(struct call *c, struct ninep_field *f)
{
	return -EACCES;
}
