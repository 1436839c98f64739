/*
 * Turns the differences between two tables into ticks. Each costs the daemon two requests, so their
 * number is limited.
 */
#include "tree/var_ticks.h"
#include "group/external.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NAMES_MAX = 1000,   /* per report and directory */
	PENDING_MAX = 4000, /* in all directories together */
	DIR_SIZE = 128	    /* a group's name has at most 64 characters */
};

struct var_told {
	struct place at; /* referenced */
	enum tick_kind kind;
	char *path;
	bool reported; /* the rank has reported it too */
	TAILQ_ENTRY(var_told) link;
};

static TAILQ_HEAD(, var_told) all_told = TAILQ_HEAD_INITIALIZER(all_told);

struct var_told *
var_ticks_told(const struct place *at, const char *name, enum tick_kind kind)
{
	struct var_told *t;

	if (*name == '_')
		return NULL;
	t = xcalloc(1, sizeof(*t));
	*t = (struct var_told){.at = *at, .kind = kind};
	t->at.name = NULL;
	place_ref(&t->at);
	t->at.name = xstrdup(name);
	t->path = at->rank < 0 ? xasprintf("%s/vars/%s", at->g->name, name)
			       : xasprintf("%s/rank%d/vars/%s", at->g->name, at->rank, name);
	TAILQ_INSERT_TAIL(&all_told, t, link);
	return t;
}

void
var_ticks_settle(struct var_told *t)
{
	struct rank *k = t ? place_rank(&t->at, NULL) : NULL;
	bool is_there = k && var_table_find(k->table, t->at.name).p;

	if (!t)
		return;
	TAILQ_REMOVE(&all_told, t, link);
	if (k && !t->reported && is_there != (t->kind == TICK_CREATE))
		ticks_path(is_there ? TICK_CREATE : TICK_DELETE, "%s", t->path);
	place_free(&t->at);
	free(t->path);
	free(t);
}

/* Has the kernel already reported it? */
static bool
is_told(enum tick_kind kind, const char *dir, struct slice name)
{
	size_t n = strlen(dir);
	struct var_told *t;

	TAILQ_FOREACH (t, &all_told, link)
		if (t->kind == kind && !t->reported && strncmp(t->path, dir, n) == 0 &&
		    t->path[n] == '/' && slice_eq(name, t->path + n + 1)) {
			t->reported = true;
			return true;
		}
	return false;
}

static void
tick_name(void *dir, bool made, struct slice name)
{
	enum tick_kind kind = made ? TICK_CREATE : TICK_DELETE;

	if (!is_told(kind, dir, name))
		ticks_path(kind, "%s/%.*s", (const char *)dir, (int)name.n, name.p);
}

static void
tick_directory(char *dir, const struct var_table *old, const struct var_table *new, size_t n)
{
	if (n > NAMES_MAX || ticks_pending() + n > PENDING_MAX)
		ticks_path(TICK_MODIFY, "%s", dir);
	else
		var_table_diff(old, new, tick_name, dir);
}

void
var_ticks_table(struct group *g, int rank, const struct var_table *old, const struct var_table *new)
{
	size_t n = var_table_diff(old, new, NULL, NULL);
	char dir[DIR_SIZE];

	if (n == 0)
		return;
	snprintf(dir, sizeof(dir), "%s/rank%d/vars", g->name, rank);
	tick_directory(dir, old, new, n);
	if (rank != external_first(g))
		return;
	snprintf(dir, sizeof(dir), "%s/vars", g->name);
	tick_directory(dir, old, new, n);
}
