/* Namespaces to a directory, and back. */
#include "group/save.h"
#include "base/daemon.h"
#include "group/alike.h"
#include "group/cell.h"
#include "group/events.h"
#include "group/external.h"
#include "group/host.h"
#include "group/journal.h"
#include "group/queue.h"
#include "group/steer.h"
#include "host/path.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char begin[] = "# ddip ", verb_end[] = ": ";

/* ---- the source ---- */

/* Is it one of ours? Stores its verb and directory. */
static bool
is_ours(const struct cell *c, struct slice *verb, struct slice *dir)
{
	struct slice rest = {c->source, c->source_len};
	const char *token;

	if (rest.n < sizeof(begin) + 4 || memcmp(rest.p, begin, sizeof(begin) - 1) != 0 ||
	    memchr(rest.p, '\n', rest.n))
		return false;
	*verb = (struct slice){rest.p + sizeof(begin) - 1, 4};
	if (memcmp(verb->p, "save", 4) != 0 && memcmp(verb->p, "load", 4) != 0)
		return false;
	token = verb->p + verb->n + sizeof(verb_end) - 1;
	dir->p =
	    token < rest.p + rest.n ? memchr(token, ' ', (size_t)(rest.p + rest.n - token)) : NULL;
	if (!dir->p)
		return false;
	dir->p++;
	dir->n = (size_t)(rest.p + rest.n - dir->p);
	return true;
}

/* The absolute path without a slash at its end. NULL with *e set: EINVAL. */
static char *
absolute(const struct group *g, const char *verb, const char *dir, struct err *e)
{
	char *path = *dir == '/' ? xstrdup(dir) : xasprintf("%s/%s", g->set.cwd, dir);
	size_t n = strlen(path);
	int r = hosts_here(g) ? path_check_outside(verb, path, e) : 0;

	while (n && path[n - 1] == '/')
		path[--n] = '\0';
	if (r == -EINVAL || n == 0 || n >= PATH_MAX || !*dir) {
		if (r != -EINVAL)
			fail(e, EINVAL, "%s: want a directory, not '%.200s'", verb, dir);
		free(path);
		return NULL;
	}
	*e = (struct err){0}; /* the ranks will say what is wrong with it */
	return path;
}

/* Does one cell run, on all ranks that the group has? */
static bool
runs_on_all(const struct group *g, const struct rank_set *own)
{
	const struct cell *around = NULL;

	RANK_SET_EACH (rank, own) {
		const struct subtask *j = queue_outermost(&g->ranks[rank]);

		if (!j || j->w->kind != TASK_RUN || (around && around != j->w->cell))
			return false;
		around = j->w->cell;
	}
	return around != NULL;
}

struct cell *
save_submit(struct group *g, const char *verb, const char *dir, struct err *e)
{
	uint64_t token = now_ns();
	char *path, *source;
	struct rank_set own;
	struct cell *c;

	if (g->life.state == G_NEW && strcmp(verb, "save") == 0) {
		fail(e, ESRCH, "save: no engine runs, there is nothing to save");
		return NULL;
	}
	path = absolute(g, verb, dir, e);
	if (!path)
		return NULL;
	if (getrandom(&token, sizeof(token), GRND_NONBLOCK) != sizeof(token))
		token = now_ns();
	source = xasprintf("%s%s%s%" PRIx64 " %s", begin, verb, verb_end, token, path);
	external_own(g, &own);
	if (runs_on_all(g, &own))
		c = steer_submit(g, slice_text(source), e);
	else
		c = cell_submit(g, &own, slice_text(source), e);
	free(source);
	free(path);
	return c;
}

/* ---- what could not be kept ---- */

/* Equal lists are told once. */
static void
tell_lost(const struct cell *c, const char *what)
{
	struct alike *t = xcalloc((size_t)c->n + 1, sizeof(*t));
	struct alike **first = xcalloc((size_t)c->n + 1, sizeof(struct alike *));
	int sets;

	for (int i = 0; i < c->n; i++)
		t[i] = (struct alike){c->w->subtasks[i].value, i, 0};
	sets = alike_sets(t, c->n, first);
	for (int i = 0; i < sets; i++) {
		struct buf b = {0};
		struct err e = {0};

		if (!*first[i]->text)
			continue;
		buf_adds(&b, first[i]->n > 1 ? "ranks " : "rank ");
		alike_ranks(first[i], c->ranks, &b);
		buf_adds(&b, first[i]->n > 1 ? " have not: " : " has not: ");
		journal_add_lost(slice_text(first[i]->text), &b);
		fail(&e, EOPNOTSUPP, "%s", b.p);
		journal_fail(c->g, &e, what);
		buf_free(&b);
	}
	free(first);
	free(t);
}

void
event_subtask_over(struct subtask *j)
{
	struct task *w = j->w;
	struct slice verb, dir;
	char *what;

	steer_part_over(j);
	if (w->left > 1 || !w->cell || !is_ours(w->cell, &verb, &dir))
		return;
	what = xasprintf("%.*s %.*s", (int)verb.n, verb.p, (int)dir.n, dir.p);
	if (!w->err.no)
		tell_lost(w->cell, what);
	journal_event(w->g, "%.*s cell=%d %s %.*s", (int)verb.n, verb.p, w->cell->number,
	    w->err.no ? err_name(w->err.no) : "ok", (int)dir.n, dir.p);
	free(what);
}
