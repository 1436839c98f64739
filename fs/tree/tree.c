/* Nodes and open files, driven by the rows of names.c. */
#include "tree/tree.h"
#include "base/ahead.h"
#include "base/daemon.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/registry.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUCKETS = 1024 };

static TAILQ_HEAD(bucket, node) nodes[BUCKETS]; /* by ino */
static double told_time; /* of a change, the last one that a client was told */
static struct node *root;
static uint64_t generation;

void
place_ref(struct place *at)
{
	if (at->g)
		group_ref(at->g);
	if (at->cell)
		cell_ref(at->cell);
	if (at->inside)
		at->inside = xstrdup(at->inside);
	if (at->name)
		at->name = xstrdup(at->name);
}

void
place_free(struct place *at)
{
	if (at->cell)
		cell_unref(at->cell);
	if (at->g)
		group_unref(at->g);
	free(at->inside);
	free(at->name);
	*at = (struct place){.rank = -1};
}

/* A cell keeps its ranks, whatever the group's size is now. */
bool
place_gone(const struct place *at)
{
	return at->g && (at->g->gone || (at->rank >= at->g->size && !at->cell));
}

int
place_fail(const struct place *at, struct err *e)
{
	if (at->g->gone)
		return fail(e, ENODEV, "the group %s is gone", at->g->name);
	return fail(e, ENODEV, "rank %d no longer exists: the group %s has ranks 0..%d", at->rank,
	    at->g->name, at->g->size - 1);
}

struct rank *
place_rank(const struct place *at, struct err *e)
{
	/* the rank of a cell may have gone, though the cell keeps it */
	if (!place_gone(at) && at->rank < at->g->size)
		return group_rank(at->g, at->rank >= 0 ? at->rank : external_first(at->g));
	place_fail(at, e);
	return NULL;
}

/* FNV-1a over what a path stands for: the same path always has the same inode number, and another
 * path has a different one unless the hashes collide. */
static uint64_t
inode_number(const struct row *row, const struct place *at)
{
	uint64_t part[5] = {(uint64_t)(row - name_rows) + 1, at->g ? at->g->serial : 0,
	    (uint64_t)(at->rank + 1), at->cell ? (uint64_t)at->cell->number : 0,
	    (uint64_t)at->frame};
	uint64_t h = hash_add(HASH_START, part, sizeof(part));

	if (at->inside) /* with its NUL, which ends it */
		h = hash_add(h, at->inside, strlen(at->inside) + 1);
	if (at->name)
		h = hash_add(h, at->name, strlen(at->name));
	return h | 2; /* 0 and 1 are reserved */
}

static bool
same_place(const struct place *a, const struct place *b)
{
	return a->g == b->g && a->rank == b->rank && a->cell == b->cell && a->frame == b->frame &&
	       strcmp(a->inside ? a->inside : "", b->inside ? b->inside : "") == 0 &&
	       strcmp(a->name ? a->name : "", b->name ? b->name : "") == 0;
}

struct node *
tree_node(const struct row *row, struct place at)
{
	uint64_t ino = inode_number(row, &at);
	struct bucket *b = &nodes[ino % BUCKETS];
	struct node *n = NULL;

	if (!(row->flags & ROW_PRIVATE_NODE))
		TAILQ_FOREACH (n, b, link)
			if (n->row == row && same_place(&n->at, &at))
				break;
	if (n) {
		place_free(&at);
	} else {
		generation++;
		n = xcalloc(1, sizeof(*n));
		*n = (struct node){.ino = ino, .generation = generation, .row = row, .at = at};
		n->mtime = now_wall();
		TAILQ_INSERT_HEAD(b, n, link);
	}
	n->lookups++;
	return n;
}

void
tree_init(void)
{
	for (int i = 0; i < BUCKETS; i++)
		TAILQ_INIT(&nodes[i]);
	root = tree_node(&name_rows[0], (struct place){.rank = -1});
}

struct node *
tree_root(void)
{
	return root;
}

static void
node_free(struct node *n)
{
	TAILQ_REMOVE(&nodes[n->ino % BUCKETS], n, link);
	place_free(&n->at);
	free(n);
}

struct node *
tree_looked_up(struct node *n, pid_t seeker)
{
	const unsigned both = ROW_PRIVATE_NODE | ROW_CACHEABLE;
	struct node *o = NULL;

	if ((n->row->flags & both) == ROW_PRIVATE_NODE && seeker)
		TAILQ_FOREACH (o, &nodes[n->ino % BUCKETS], link)
			if (o != n && o->row == n->row && same_place(&o->at, &n->at) &&
			    o->opens == 0 && (o->seeker == -1 || o->seeker == seeker))
				break;
	if (o) {
		o->lookups++;
		o->size = 0;
		o->mtime = n->mtime;
		tree_forget(n, 1);
		n = o;
	}
	n->seeker = seeker;
	return n;
}

void
tree_forget(struct node *n, uint64_t lookups)
{
	if (!n)
		return;
	n->lookups -= MIN(lookups, n->lookups);
	if (n->lookups || n == root)
		return;
	node_free(n);
}

/* ---- nodes of groups that were removed ---- */

/* What they stand for. The kernel keeps what was in use at the rmdir, by the watchdog for one,
 * until memory is short. */
static struct group removed = {.gone = true, .name = (char[]){"that it was in"}, .refs = 1};

static bool
is_removed(const struct node *n)
{
	return n->at.g == &removed;
}

void
tree_closed(struct node *n)
{
	if (n->opens || !n->at.g || !n->at.g->gone || is_removed(n))
		return;
	place_free(&n->at);
	n->at.g = group_ref(&removed);
}

void
tree_remove_group(const struct group *g)
{
	struct node *n;

	for (int i = 0; i < BUCKETS; i++)
		TAILQ_FOREACH (n, &nodes[i], link)
			if (n->at.g == g)
				tree_closed(n);
}

void
tree_fini(void)
{
	struct node *n;

	for (int i = 0; i < BUCKETS; i++)
		while ((n = TAILQ_FIRST(&nodes[i])))
			node_free(n);
	root = NULL;
}

/* The last part of a row's path if the row is a child of dir, else NULL. */
static const char *
child_part(const struct row *dir, const struct row *row)
{
	size_t n = strlen(dir->path);

	if (row == dir)
		return row->flags & ROW_NESTS ? strrchr(row->path, '/') + 1 : NULL;
	if (strncmp(row->path, dir->path, n) != 0)
		return NULL;
	if (n && row->path[n] != '/')
		return NULL;
	n += n > 0;
	return row->path[n] && !strchr(row->path + n, '/') ? row->path + n : NULL;
}

static const struct part *
part_of(const char *word)
{
	for (size_t i = 0; i < name_part_count; i++)
		if (strcmp(name_parts[i].word, word) == 0)
			return &name_parts[i];
	return NULL;
}

const struct row *
tree_child(const struct row *dir, const char *part)
{
	for (size_t i = 0; i < name_count; i++) {
		const char *word = child_part(dir, &name_rows[i]);

		if (word && strcmp(word, part) == 0)
			return &name_rows[i];
	}
	return NULL;
}

struct node *
tree_lookup(struct node *dir, const char *name, int *error)
{
	*error = -ENOENT;
	if (place_gone(&dir->at)) {
		*error = -ENODEV;
		return NULL;
	}
	for (size_t i = 0; i < name_count; i++) {
		const struct row *row = &name_rows[i];
		const char *word = child_part(dir->row, row);
		const struct part *part = word ? part_of(word) : NULL;
		struct place at = dir->at;

		if (!word || (!part && strcmp(word, name) != 0))
			continue;
		place_ref(&at);
		if (part) {
			int r = part->find(&at, name);

			if (r < 0) {
				place_free(&at);
				*error = r == -ENOENT ? *error : r;
				continue;
			}
		}
		return tree_node(row, at);
	}
	return NULL;
}

/* Fills in the type and inode number of an entry of this row. */
static void
fill_entry(struct dir_entry *e, const struct row *row, const struct place *at)
{
	/* programs that walk a tree by these types skip pipes, so none blocks there by accident */
	e->type = row->flags & ROW_LIVE ? S_IFIFO : row->mode & S_IFMT;
	e->ino = inode_number(row, at);
}

static void
end_part(struct tree_cursor *c)
{
	if (c->part.state)
		c->part.free(c->part.state);
	c->part = (struct part_cursor){0};
	c->row++;
}

bool
tree_next(struct tree_cursor *c, struct dir_entry *e)
{
	const struct node *dir = c->dir;

	for (; c->row < name_count && !place_gone(&dir->at); end_part(c)) {
		const struct row *row = &name_rows[c->row];
		const char *word = child_part(dir->row, row);
		const struct part *part = word ? part_of(word) : NULL;
		struct place at = dir->at; /* holds no references */

		if (!word || ((row->flags & ROW_HIDDEN) && row != dir->row))
			continue;
		at.name = NULL;
		c->part.found = c->found;
		if (part && !part->next(&dir->at, &c->part, &at, e->name))
			continue;
		fill_entry(e, row, &at);
		if (!part) {
			snprintf(e->name, sizeof(e->name), "%s", word);
			end_part(c);
		}
		return true;
	}
	return false;
}

void
tree_cursor_free(struct tree_cursor *c)
{
	end_part(c);
	c->row = name_count;
}

/* Grants the owner's permissions to the group and to others too, minus the umask of the mount. */
static mode_t
shared_mode(mode_t mode)
{
	mode_t own = mode & S_IRWXU;

	if (S_ISLNK(mode))
		return mode;
	return (mode & S_IFMT) | ((own | own >> 3 | own >> 6) & ~daemon_.mode.umask);
}

static uint64_t
text_size(const struct node *n)
{
	struct buf b = {0};
	struct err e;
	uint64_t size;

	n->row->text(&n->at, &b, &e);
	size = b.n;
	buf_free(&b);
	return size;
}

void
tree_stat(struct node *n, struct stat *st)
{
	const struct row *row = n->row;
	uint64_t size = 0;
	double t =
	    n->at.g && n->at.g->journal.changed > n->mtime && !(row->flags & ROW_PRIVATE_NODE)
		? n->at.g->journal.changed
		: n->mtime;

	*st = (struct stat){.st_ino = n->ino,
	    .st_mode = shared_mode(row->mode),
	    .st_nlink = S_ISDIR(row->mode) ? 2 : 1,
	    .st_uid = daemon_.mode.uid,
	    .st_gid = daemon_.mode.gid,
	    .st_blksize = 1 << 20};
	if (is_removed(n))
		size = 0;
	else if (S_ISLNK(row->mode) || (row->flags & ROW_SIZED))
		size = text_size(n);
	else if (row->flags & ROW_PRIVATE_NODE)
		size = n->size;
	else if (row->ops && row->ops->size)
		size = row->ops->size(&n->at);
	st->st_size = (off_t)MIN(size, (uint64_t)INT64_MAX);
	if (row->ops && row->ops->mtime && !is_removed(n)) {
		t = row->ops->mtime(&n->at);
		if (t != told_time)
			ahead_expire(); /* it tells of a change */
		told_time = t;
	}
	n->told = (uint64_t)st->st_size;
	st->st_blocks = st->st_size / 512 + (st->st_size % 512 > 0);
	st->st_mtim.tv_sec = (time_t)t;
	st->st_mtim.tv_nsec = (long)((t - (double)(time_t)t) * 1e9);
	st->st_atim = st->st_ctim = st->st_mtim;
}

int
tree_link(const struct node *n, struct buf *out, struct err *e)
{
	return is_removed(n) ? place_fail(&n->at, e) : n->row->text(&n->at, out, e);
}

void
tree_path(const struct node *n, struct buf *out)
{
	char *path = xstrdup(is_removed(n) ? "(removed)" : n->row->path), *save;
	const char *sep = "";

	for (char *word = strtok_r(path, "/", &save); word; word = strtok_r(NULL, "/", &save)) {
		const struct part *part = part_of(word);

		buf_adds(out, sep);
		if (part)
			part->print(&n->at, out);
		else
			buf_adds(out, word);
		sep = "/";
	}
	free(path);
}

static void
add_child(const struct node *dir, const struct node *n, struct buf *names)
{
	struct buf b = {0};
	char *path;

	if (n->at.g != dir->at.g || !child_part(dir->row, n->row))
		return;
	tree_path(n, &b);
	path = buf_take(&b);
	buf_adds(names, strrchr(path, '/') + 1);
	buf_add(names, "", 1);
	free(path);
}

void
tree_children(const struct node *dir, struct buf *names)
{
	const struct node *n;

	for (int i = 0; i < BUCKETS; i++)
		TAILQ_FOREACH (n, &nodes[i], link)
			add_child(dir, n, names);
}

/* Sets no error text: programs that walk a tree run into these, and the mode says it all. */
static int
check_mode(const struct row *row, int flags)
{
	int want = flags & O_ACCMODE;

	if (S_ISDIR(row->mode))
		return -EISDIR;
	if ((want != O_WRONLY && !(row->mode & 0400)) || (want != O_RDONLY && !(row->mode & 0200)))
		return -EACCES;
	return 0;
}

int
tree_open(struct file *f, struct req *r)
{
	const struct row *row = f->node->row;
	int result;

	if (f->flags & O_PATH)
		return 0;
	result = check_mode(row, f->flags);
	if (result < 0)
		return result;
	f->ops = row->ops;
	if ((f->flags & O_TRUNC) && f->ops && f->ops->truncate) {
		result = f->ops->truncate(&f->node->at, f, 0, &r->err);
		if (result < 0)
			return result;
	}
	if (row->text && (f->flags & O_ACCMODE) != O_WRONLY) {
		result = row->text(&f->node->at, &f->text, &r->err);
		if (result < 0)
			return result;
	}
	return f->ops && f->ops->open ? f->ops->open(f, r) : 0;
}

uint64_t
tree_open_size(struct file *f)
{
	struct node *n = f->node;

	if ((f->flags & O_ACCMODE) == O_WRONLY)
		return 0;
	if (!(n->row->flags & ROW_PRIVATE_NODE))
		return f->text.n;
	n->size = MAX(f->text.n, n->size);
	return n->size;
}

void
tree_read(struct file *f, struct req *r)
{
	size_t at = (size_t)MIN(r->offset, (uint64_t)f->text.n);

	if (f->ops && f->ops->read)
		f->ops->read(f, r);
	else
		req_data(r, f->text.p + at, MIN(r->want, f->text.n - at));
}

void
tree_release(struct file *f)
{
	if (f->ops && f->ops->release)
		f->ops->release(f);
	buf_free(&f->text);
}
