/*
 * The user's frames of a rank, and what they hold: rankK/frames, rankK/locals, rankK/locals.F,
 * G/locals, and the `locals` of a failed cell. The rank is asked
 * (engine/ddip_engine/data/frames.py); one that runs no cell has no frames.
 */
#include "tree/frame_file.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/rank.h"
#include "tree/rank_view.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES_MAX = 10000 }; /* well above Python's limit of recursion */

int
frame_file_find_locals(struct place *at, const char *name)
{
	if (strcmp(name, "locals") != 0)
		return -ENOENT;
	at->frame = FRAME_ALL;
	return 0;
}

bool
frame_file_next_locals(
    const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	child->frame = FRAME_ALL;
	snprintf(name, ENTRY_NAME_SIZE, "locals");
	return c->at++ == 0;
}

int
frame_file_find_numbered(struct place *at, const char *name)
{
	char *end;
	unsigned long n;

	if (strncmp(name, "locals.", 7) != 0 || name[7] < '0' || name[7] > '9')
		return -ENOENT;
	n = strtoul(name + 7, &end, 10);
	if (*end || n >= FRAMES_MAX)
		return -ENOENT;
	at->frame = FRAME_FIRST + (int)n;
	return 0;
}

void
frame_file_print(const struct place *at, struct buf *out)
{
	buf_adds(out, "locals");
	if (at->frame >= FRAME_FIRST)
		buf_addf(out, ".%d", at->frame - FRAME_FIRST);
}

void
frame_file_print_inside(const struct place *at, struct buf *out)
{
	for (const char *p = at->inside; *p; p++) {
		if (*p == '/')
			buf_adds(out, ".d");
		buf_addc(out, *p);
	}
	buf_adds(out, ".d");
}

void
frame_file_scope(const struct place *at, char *scope)
{
	int n = 0;

	*scope = '\0';
	if (at->cell)
		n = snprintf(scope, VAR_SCOPE_SIZE, "cell %d:", at->cell->number);
	else if (at->frame == FRAME_ALL)
		n = snprintf(scope, VAR_SCOPE_SIZE, "frames:");
	else if (at->frame)
		n = snprintf(scope, VAR_SCOPE_SIZE, "frame %d:", at->frame - FRAME_FIRST);
	if (at->inside)
		snprintf(scope + n, VAR_SCOPE_SIZE - (size_t)n, "%s/", at->inside);
}

bool
frame_file_next_name(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	const char *p = c->found.p + c->at;
	size_t n = c->found.n - (size_t)c->at;
	const char *end = n ? memchr(p, '\n', n) : NULL;

	if (!end)
		return false;
	snprintf(name, ENTRY_NAME_SIZE, "%.*s", (int)(end - p), p);
	c->at += (uint64_t)(end - p) + 1;
	child->name = name;
	return true;
}

/* A cell whose frames are gone has none. */
static int
has_none(struct file *f, struct err *e)
{
	return e->no == ENOENT ? 0 : -e->no;
}

static int
open_frames(struct file *f, struct req *r)
{
	const struct place *at = &f->node->at;
	struct rank *k = place_rank(at, &r->err);
	char scope[VAR_SCOPE_SIZE], *name;
	int result;

	if (!k && at->cell)
		return 0; /* it has gone, and its frames with it */
	if (!k || (at->rank >= 0 && external_refuse(k, &r->err) < 0))
		return -r->err.no;
	if (k->slot == NO_SLOT || k->state == R_SPAWNING)
		return 0; /* no engine, no frames */
	frame_file_scope(at, scope);
	name = xasprintf("%s__main__", scope);
	result = rank_view_ask(f, r, k, name, at->frame ? "names" : "frames", has_none);
	free(name);
	return result;
}

const struct file_ops frame_file_ops = {.open = open_frames};
