/*
 * Staged files: a memfd for each, found by directory and name; and what happens when they are
 * renamed.
 */
#include "tree/staged_file.h"
#include "base/daemon.h"
#include "base/stderr_of.h"
#include "group/journal.h"
#include "group/registry.h"
#include "tree/tell.h"
#include "tree/var_change.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct staged {
	uint64_t serial; /* ascending in the list; never reused */
	uint64_t group;	 /* its group's serial number; 0: removed */
	int rank;	 /* -1: G/vars */
	char *name;
	struct push push;
	double mtime;
	struct stderr_of *err; /* of its last writer; NULL: not known */
	int refs;	       /* held by the directory, open files, a pull that fills it */
	bool pushed;	       /* ranks map its pages: no more writes */
	TAILQ_ENTRY(staged) link;
};

static TAILQ_HEAD(, staged) all = TAILQ_HEAD_INITIALIZER(all);

static struct staged *
find(const struct place *at, const char *name)
{
	struct staged *s;

	TAILQ_FOREACH (s, &all, link)
		if (s->group == at->g->serial && s->rank == at->rank && strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

static void
unref(struct staged *s)
{
	if (--s->refs > 0)
		return;
	push_close(&s->push);
	stderr_of_unref(s->err);
	free(s->name);
	free(s);
}

static void
drop(struct staged *s)
{
	TAILQ_REMOVE(&all, s, link);
	s->group = 0;
	unref(s);
}

/* Drops the files of groups that no longer exist. */
static void
staged_sweep(void)
{
	struct staged *s, *next;

	for (s = TAILQ_FIRST(&all); s; s = next) {
		struct group *g;

		next = TAILQ_NEXT(s, link);
		TAILQ_FOREACH (g, &groups, link)
			if (g->serial == s->group)
				break;
		if (!g)
			drop(s);
	}
}

int
staged_find(struct place *at, const char *name)
{
	if (!find(at, name))
		return -ENOENT;
	at->name = xstrdup(name);
	return 0;
}

static void
drop_cursor(void *state)
{
	unref(state);
}

bool
staged_next(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	struct staged *last = c->state, *s = TAILQ_FIRST(&all);

	if (last && last->group)
		s = TAILQ_NEXT(last, link);
	while (s && (s->serial <= c->at || s->group != at->g->serial || s->rank != at->rank))
		s = TAILQ_NEXT(s, link);
	if (!s)
		return false;
	s->refs++;
	if (last)
		unref(last);
	*c = (struct part_cursor){.at = s->serial, .state = s, .free = drop_cursor};
	snprintf(name, ENTRY_NAME_SIZE, "%s", s->name);
	child->name = name;
	return true;
}

static struct staged *
make(const struct place *at, const char *name)
{
	static uint64_t serial;
	struct staged *s = find(at, name);

	if (s)
		return s;
	staged_sweep();
	s = xcalloc(1, sizeof(*s));
	serial++;
	*s = (struct staged){.serial = serial,
	    .group = at->g->serial,
	    .rank = at->rank,
	    .push.memfd = -1,
	    .refs = 1};
	s->name = xstrdup(name);
	s->mtime = now_wall();
	TAILQ_INSERT_TAIL(&all, s, link);
	return s;
}

void
staged_make(const struct place *at, const char *name)
{
	make(at, name);
}

/* Only mkstemp(3) opens for reading and writing, exclusively, with access for the user alone: no
 * program pushes an object like that. */
bool
staged_wants(const char *name, int flags, mode_t mode)
{
	return var_is_staging(name) ||
	       ((flags & O_EXCL) && (flags & O_ACCMODE) == O_RDWR && !(mode & 077));
}

int
staged_remove(const struct place *at)
{
	struct staged *s = find(at, at->name);

	if (!s)
		return -ENOENT;
	drop(s);
	return 0;
}

/* ---- the open file ---- */

static int
need_memfd(struct staged *s, struct err *e)
{
	if (s->pushed)
		return fail(e, EACCES,
		    "%s was pushed when it was renamed: open the variable instead", s->name);
	return s->push.memfd < 0 ? push_open(&s->push, s->name, e) : 0;
}

static int
resize(struct staged *s, uint64_t size, struct err *e)
{
	if (need_memfd(s, e) < 0)
		return -e->no;
	if (push_resize(&s->push, size, s->name, e) < 0)
		return -e->no;
	s->mtime = now_wall();
	return 0;
}

static int
staged_open(struct file *f, struct req *r)
{
	struct staged *s = find(&f->node->at, f->node->at.name);

	if (!s)
		return -ENOENT;
	s->refs++;
	f->state = s;
	return 0;
}

static void
staged_release(struct file *f)
{
	struct staged *s = f->state;

	if (!s)
		return;
	if (f->err) {
		stderr_of_unref(s->err);
		s->err = stderr_of_ref(f->err);
	}
	unref(s);
}

static void
staged_read(struct file *f, struct req *r)
{
	struct staged *s = f->state;

	push_read(&s->push, s->name, r);
}

static int
staged_sync(struct file *f, struct req *r)
{
	struct staged *s = f->state;

	return push_settle(&s->push, s->name, &r->err);
}

static ssize_t
staged_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct staged *s = f->state;
	ssize_t k;

	if (need_memfd(s, e) < 0)
		return -e->no;
	k = push_write(&s->push, p, n, f->flags & O_APPEND ? s->push.size : offset, s->name, e);
	s->mtime = now_wall();
	return k;
}

static int
staged_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	struct staged *s = f && f->state ? f->state : find(at, at->name);

	return s ? resize(s, size, e) : -ENOENT;
}

static uint64_t
staged_size(const struct place *at)
{
	struct staged *s = find(at, at->name);

	return s ? s->push.size : 0;
}

static double
staged_mtime(const struct place *at)
{
	struct staged *s = find(at, at->name);

	return s ? s->mtime : now_wall();
}

const struct file_ops staged_ops = {
    .open = staged_open,
    .read = staged_read,
    .write = staged_write,
    .flush = staged_sync,
    .fsync = staged_sync,
    .release = staged_release,
    .truncate = staged_truncate,
    .size = staged_size,
    .mtime = staged_mtime,
};

/* ---- mv ---- */

bool
staged_concerns(const struct place *from, const struct place *to)
{
	return find(from, from->name) || var_is_staging(to->name);
}

/* A copy of a variable's current value in a staged file: an editor's backup. */
struct backup {
	struct staged *s; /* referenced */
	struct group *g;  /* referenced */
	char *name;
	struct pull *pull;
	struct reduction *copy;
};

static void
backup_done(void *arg, const struct err *e)
{
	struct backup *b = arg;

	if (e->no)
		journal_fail(b->g, e, b->name);
	else if (!b->s->pushed && b->s->push.memfd < 0) {
		b->s->push.memfd = fcntl(reduce_result(b->copy), F_DUPFD_CLOEXEC, 0);
		b->s->push.size = b->s->push.memfd < 0 ? 0 : pull_size(b->pull);
	}
	reduce_free(b->copy);
	pull_free(b->pull);
	unref(b->s);
	group_unref(b->g);
	free(b->name);
	free(b);
}

static void
backup_pulled(void *arg, const struct err *e)
{
	struct backup *b = arg;
	struct err why = *e;
	struct shard all_of_it;

	if (!why.no) {
		shard_raw(&all_of_it, 0, pull_source(b->pull), pull_size(b->pull));
		b->copy = reduce_new(&reduce_cat, b->name, &all_of_it, 1, &why);
	}
	if (b->copy)
		reduce_run(b->copy, daemon_.loop, backup_done, b);
	else
		backup_done(b, &why);
}

/* The variable is kept: the editor writes it again in a moment, and if it does not, nothing is
 * lost. The rank is asked now, ahead of any push that follows. */
static int
back_up(const struct place *from, const struct place *to, struct err *e)
{
	struct var_name name;
	struct backup *b;
	struct pull *pull;
	struct staged *old = find(to, to->name);

	if (var_parse(from->name, from->rank < 0, &name, e) < 0)
		return -e->no;
	if (!name.view->reads || (name.op && !name.op->reads))
		return fail(e, EOPNOTSUPP, "%s can't be read", from->name);
	pull = var_change_pull(from, &name, e);
	if (!pull)
		return -e->no;
	if (old)
		drop(old);
	b = xcalloc(1, sizeof(*b));
	*b = (struct backup){.s = make(to, to->name), .g = group_ref(from->g), .pull = pull};
	b->s->refs++;
	b->name = xstrdup(from->name);
	pull_to_host(pull);
	pull_start(pull, backup_pulled, b);
	return 0;
}

int
staged_rename(const struct place *from, const struct place *to, struct err *e)
{
	struct staged *s = find(from, from->name), *old;
	struct task *w;

	if (from->g != to->g || from->rank != to->rank)
		return fail(e, EXDEV, "mv renames within one directory; cp copies to another");
	if (!s)
		return back_up(from, to, e);
	if (var_is_staging(to->name) || find(to, to->name)) {
		old = find(to, to->name);
		if (old && old != s)
			drop(old);
		xreplace(&s->name, to->name);
		return 0;
	}
	if (need_memfd(s, e) < 0)
		return -e->no;
	w = var_change_push_staged(to, &s->push, e);
	if (!w)
		return -e->no;
	tell_later(s->err, w); /* rename(2) does not wait for the push */
	s->pushed = true;
	drop(s);
	return 0;
}
