/*
 * What is in an object: vars/NAME.d, locals/NAME.d, and the directories in these. The rank is asked
 * (engine/ddip_engine/data/inside.py). Its text is a line that says what is not listed, the
 * directories, an empty line, the files.
 */
#define _GNU_SOURCE
#include "tree/inside_dir.h"
#include "group/journal.h"
#include "object/pull.h"
#include "tree/frame_file.h"
#include "tree/var_change.h"
#include "tree/var_names.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
inside_dir_find(struct place *at, const char *name)
{
	return -ENOENT;
}

bool
inside_dir_next(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	const char *notice = memchr(c->found.p, '\n', c->found.n);

	if (c->at == 0 && notice)
		c->at = (uint64_t)(notice + 1 - c->found.p);
	if (!frame_file_next_name(at, c, child, name) || !*name)
		return false;
	free(c->state);
	c->state = child->inside = xasprintf("%s/%.*s", at->inside, (int)var_directory(name), name);
	c->free = free;
	child->name = NULL;
	return true;
}

bool
inside_dir_next_key(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	const char *gap = c->at ? NULL : memmem(c->found.p, c->found.n, "\n\n", 2);

	if (gap)
		c->at = (uint64_t)(gap + 2 - c->found.p);
	return frame_file_next_name(at, c, child, name);
}

/* ---- opening ---- */

struct opening {
	struct file *f;
	struct req *r;
	struct pull *pull;
};

static void
answer(struct opening *o, int result)
{
	struct req *r = o->r;

	pull_free(o->pull);
	free(o);
	req_done(r, result);
}

/* The rank says in the first line of the text what it has not listed. */
static void
journal_notice(const struct file *f)
{
	const char *end = memchr(f->text.p, '\n', f->text.n);
	struct buf path = {0};
	struct err e;

	if (!end || end == f->text.p)
		return;
	fail(&e, ENAMETOOLONG, "%.*s", (int)(end - f->text.p), f->text.p);
	tree_path(f->node, &path);
	journal_fail(f->node->at.g, &e, path.p);
	buf_free(&path);
}

static void
on_pulled(void *arg, const struct err *e)
{
	struct opening *o = arg;
	struct buf *text = &o->f->text;
	size_t size = e->no ? 0 : (size_t)pull_size(o->pull);
	ssize_t n = 1;

	o->r->err = *e;
	if (size)
		buf_reserve(text, size);
	while (text->n < size && n > 0) {
		n = source_copy(pull_source(o->pull), text->n, text->p + text->n, size - text->n);
		text->n += n > 0 ? (size_t)n : 0;
	}
	if (n <= 0)
		fail(&o->r->err, n ? (int)-n : EIO, "the list of entries could not be read");
	else if (size)
		journal_notice(o->f);
	answer(o, -o->r->err.no);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	answer(r->waits_for, -EINTR);
}

/* Waits as a reader of the object does: that the rank runs Python has just been seen, when the name
 * was looked up. */
static int
open_inside(struct file *f, struct req *r)
{
	static const struct var_view names = {.name = "names", .reads = true};
	const struct place *at = &f->node->at;
	struct pull *pull;
	struct var_name v;
	struct opening *o;

	var_names_parse(at, "", &v, NULL);
	v.view = &names;
	pull = var_change_pull(at, &v, &r->err);
	if (!pull)
		return -r->err.no;
	pull_to_host(pull);
	o = xcalloc(1, sizeof(*o));
	*o = (struct opening){.f = f, .r = r, .pull = pull};
	r->waits_for = o;
	req_park(r, interrupted);
	pull_start(pull, on_pulled, o);
	return PARKED;
}

const struct file_ops inside_dir_ops = {.open = open_inside};
