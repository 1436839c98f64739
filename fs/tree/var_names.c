/*
 * Knows which variable names exist, and lists them. A lookup holds its directory's lock, so it
 * never blocks for long.
 */
#include "tree/var_names.h"
#include "base/ahead.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/queue.h"
#include "group/task.h"
#include "object/var_table.h"
#include "tree/frame_file.h"
#include "tree/question.h"
#include "tree/replacement.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum presence { ABSENT, PRESENT, UNKNOWN };

static TAILQ_HEAD(, var_writer) writers = TAILQ_HEAD_INITIALIZER(writers);

void
var_names_open(struct var_writer *w)
{
	TAILQ_INSERT_TAIL(&writers, w, link);
}

void
var_names_close(struct var_writer *w)
{
	TAILQ_REMOVE(&writers, w, link);
}

/* Will it be pushed to the rank whose names this directory shows? */
static bool
writes_here(const struct var_writer *w, const struct place *at)
{
	return w->at->g == at->g &&
	       (w->at->rank < 0 ||
		   w->at->rank == (at->rank < 0 ? external_first(at->g) : at->rank));
}

/* ---- what is queued ---- */

/* What a task does to a name; UNKNOWN if it does not affect it. */
static enum presence
outcome(const struct task *w, const char *name)
{
	switch (w->kind) {
	case TASK_PUT:
		return strcmp(w->payload.name, name) == 0 ? PRESENT : UNKNOWN;
	case TASK_DEL:
		return strcmp(w->payload.name, name) == 0 ? ABSENT : UNKNOWN;
	case TASK_MOVE:
		if (strcmp(w->payload.to, name) == 0)
			return PRESENT;
		return strcmp(w->payload.name, name) == 0 ? ABSENT : UNKNOWN;
	case TASK_RESET:
		return ABSENT;
	default:
		return UNKNOWN;
	}
}

static bool
runs_cell(struct rank *k)
{
	struct subtask *j = queue_running(k);

	return j && task_is_cell(j->w);
}

static enum presence
presence(const struct place *at, struct rank *k, const char *name)
{
	struct var_writer *w;
	struct subtask *j;

	TAILQ_FOREACH (w, &writers, link)
		if (writes_here(w, at) && strcmp(w->name, name) == 0)
			return PRESENT;
	if (replacement_hides(at, name))
		return ABSENT;
	TAILQ_FOREACH_REVERSE (j, &k->queue, subtask_queue, link) {
		enum presence p = outcome(j->w, name);

		if (p != UNKNOWN)
			return p;
	}
	if (var_table_find(k->table, name).p)
		return PRESENT;
	/* names with a leading _ are never reported; what a running cell creates is not yet
	 * reported */
	return *name == '_' || runs_cell(k) ? UNKNOWN : ABSENT;
}

/* Will it end soon? Its queues must be moving, and no cell may be ahead of it. */
static bool
ends_soon(const struct task *w)
{
	for (int i = 0; i < w->n; i++) {
		const struct subtask *j = &w->subtasks[i];

		if (j->state == SUBTASK_DONE)
			continue;
		if (j->state == SUBTASK_QUEUED && !queue_goes_on(j->k))
			return false;
		for (; j; j = TAILQ_PREV(j, subtask_queue, link))
			if (task_is_cell(j->w))
				return false;
	}
	return true;
}

static bool
is_waited_for(const struct task *w)
{
	const struct req *r;

	TAILQ_FOREACH (r, &w->waiters, link)
		if (!req_is_nobodys(r))
			return true;
	return false;
}

/* Is it a change of this name that no process waits for? A reset is none: after it there is no such
 * name, so only who looked it up before can ask. */
static bool
changes(const struct task *w, const char *name)
{
	return w->kind != TASK_RESET && !is_waited_for(w) && outcome(w, name) != UNKNOWN;
}

bool
var_names_settling(const struct place *at, const char *name)
{
	int first = at->rank < 0 ? 0 : at->rank, last = at->rank < 0 ? at->g->size - 1 : at->rank;
	struct subtask *j;

	for (int i = first; i <= last && i < at->g->size; i++)
		TAILQ_FOREACH (j, &at->g->ranks[i].queue, link) {
			if (task_is_cell(j->w))
				break;
			if (changes(j->w, name) && ends_soon(j->w))
				return true;
		}
	return false;
}

/* ---- names in directories ---- */

int
var_names_parse(const struct place *at, const char *name, struct var_name *v, struct err *e)
{
	int r = 0;

	if (at->inside)
		var_parse_key(name, at->rank < 0, v);
	else
		r = var_parse(name, at->rank < 0, v, e);
	frame_file_scope(at, v->scope);
	return r;
}

size_t
var_names_directory(const struct place *at, const char *name)
{
	size_t n = var_directory(name);

	return at->inside || var_is_name((struct slice){name, n}) ? n : 0;
}

/* Does only the rank know what there is? */
static bool
only_rank_knows(const struct place *at)
{
	return at->frame || at->inside;
}

/* ---- looking up ---- */

static void
print_path(const struct place *at, const char *name, struct buf *path)
{
	buf_adds(path, at->g->name);
	if (at->cell)
		buf_addf(path, "/cells/%d", at->cell->number);
	if (at->rank >= 0)
		buf_addf(path, "/rank%d", at->rank);
	buf_addc(path, '/');
	if (at->frame)
		frame_file_print(at, path);
	else
		buf_adds(path, "vars");
	if (at->inside) {
		buf_addc(path, '/');
		frame_file_print_inside(at, path);
	}
	if (name)
		buf_addf(path, "/%s", name);
}

/* A lookup has no other way to report the path and the text. */
static void
fail_lookup(const struct place *at, const char *name, const struct err *e)
{
	struct buf path = {0};

	print_path(at, name, &path);
	journal_fail(at->g, e, path.p);
	buf_free(&path);
}

void
var_names_made(const struct place *at, const char *name)
{
	struct buf path = {0};

	print_path(at, name, &path);
	journal_retract(at->g, ENOENT, path.p);
	buf_free(&path);
}

/* The result for a name whose variable exists: 0, or -EINVAL if its suffixes are wrong. */
static int
found(const struct place *at, const char *name)
{
	struct var_name v;
	struct err e = {0};

	if (!at->inside && var_parse(name, at->rank < 0, &v, &e) < 0)
		fail_lookup(at, name, &e);
	return -e.no;
}

/* Extracts the variable from a file's name, whatever its suffixes. Returns false if it cannot be
 * the name of a variable. */
static bool
variable_of(const struct place *at, const char *name, struct var_name *v)
{
	if (var_is_staging(name) || var_is_probe(name))
		return false;
	var_parse(name, at->rank < 0, v, NULL);
	return *v->name;
}

int
var_names_find(struct place *at, const char *name)
{
	struct rank *k = at->frame ? NULL : place_rank(at, NULL);
	struct var_name v;
	int r;

	if (!k || var_names_directory(at, name) || !variable_of(at, name, &v) ||
	    presence(at, k, v.name) != PRESENT)
		return -ENOENT;
	r = found(at, name);
	if (r == 0)
		at->name = xstrdup(name);
	return r;
}

/* ---- asking the rank ---- */

struct ask {
	struct question q;
	struct place at;
	uint64_t epoch; /* when it was asked */
	TAILQ_ENTRY(ask) link;
};

static TAILQ_HEAD(, ask) asks = TAILQ_HEAD_INITIALIZER(asks);

/* Does the rank still owe an answer that was given up (timed out or interrupted)? Until it arrives,
 * no other lookup waits for the rank. */
static bool
is_slow(const struct rank *k)
{
	const struct ask *a;

	TAILQ_FOREACH (a, &asks, link)
		if (a->q.agent == rank_agent(k) && a->q.slot == k->slot && !a->q.r)
			return true;
	return false;
}

bool
var_names_may_ask(const struct place *at, const char *name)
{
	struct rank *k = place_rank(at, NULL);
	struct var_name v;

	if (!k || k->state != R_READY || !agent_slot_lives(rank_agent(k), k->slot))
		return false;
	if (at->inside)
		return strlen(name) < VAR_NAME_SIZE &&
		       strlen(at->inside) + 2 * VAR_NAME_SIZE < VAR_SCOPE_SIZE;
	if (!variable_of(at, name, &v))
		return false;
	if (at->frame)
		return true;
	if (var_names_directory(at, name))
		return presence(at, k, v.name) != ABSENT;
	return presence(at, k, v.name) == UNKNOWN && !is_slow(k);
}

/* Do programs look for this name wherever they are? */
static bool
is_probe(const struct place *at)
{
	return at->name && (var_is_staging(at->name) || var_is_probe(at->name));
}

/* What was found last: programs that walk over an object ask for each name in it again and again,
 * and for the object as often. */
static struct {
	uint64_t group; /* its serial number */
	int rank, frame;
	char *path;
	uint64_t epoch, until;
} known;

/* The words of a question, as Thas has them. The caller frees them. */
static char *
path_of(const struct place *at)
{
	struct var_name v;

	var_names_parse(at, at->name ? at->name : "", &v, NULL);
	return xasprintf("%s%s", v.scope, v.name);
}

static void
set_known(const struct place *at)
{
	enum { FRESH_MS = 10 };

	free(known.path);
	known.group = at->g->serial;
	known.rank = at->rank;
	known.frame = at->frame;
	known.path = path_of(at);
	known.epoch = ahead_epoch();
	known.until = now_ns() + FRESH_MS * NS_PER_MS;
}

bool
var_names_known(const struct place *at)
{
	char *path;
	size_t n;
	bool same;

	if (!at->inside || !known.path || known.epoch != ahead_epoch() || now_ns() >= known.until ||
	    known.group != at->g->serial || known.rank != at->rank || known.frame != at->frame)
		return false;
	path = path_of(at);
	n = strlen(path);
	same = strcmp(path, known.path) == 0 ||
	       (n && path[n - 1] == '/' && strncmp(path, known.path, n) == 0);
	free(path);
	return same;
}

static void
on_has(struct question *q, struct msg *m, const struct err *e)
{
	struct ask *a = (struct ask *)q;
	struct slice hint = {0};
	uint8_t has = 0;
	struct err why;
	bool still = q->r && a->epoch == ahead_epoch();

	if (m && wire_unpack(m, Rhas, NULL, &has, &hint) == 0 && hint.n && q->r &&
	    !is_probe(&a->at)) {
		fail(&why, ENOENT, "%.*s", (int)hint.n, hint.p);
		fail_lookup(&a->at, a->at.name, &why);
	}
	TAILQ_REMOVE(&asks, a, link);
	if (q->r)
		question_answer(q, has ? found(&a->at, a->at.name) : -ENOENT);
	if (has && still)
		set_known(&a->at);
	place_free(&a->at);
	free(a);
}

static void
on_ask_late(struct question *q)
{
	question_answer(q, only_rank_knows(&((struct ask *)q)->at) ? -EAGAIN : -ENOENT);
}

int
var_names_ask(const struct place *at, struct req *r)
{
	static const struct question_ops ops = {.take = on_has, .late = on_ask_late};
	struct rank *k = place_rank(at, NULL);
	struct ask *a;
	char *name;

	if (only_rank_knows(at) && is_slow(k))
		return -EAGAIN;
	a = xcalloc(1, sizeof(*a));
	*a = (struct ask){{.ops = &ops, .r = r}, .at = *at, .epoch = ahead_epoch()};
	place_ref(&a->at);
	TAILQ_INSERT_TAIL(&asks, a, link);
	question_begin(&a->q, k, Thas);
	name = path_of(at);
	agent_send(a->q.agent, Thas, 0, a->q.slot, a->q.tag, -1, slice_text(name));
	free(name);
	return PARKED;
}

/* ---- listing ---- */

/* A name that is added to the table, or overrides its entry there. */
struct change {
	char *name;
	size_t order; /* the latest one wins */
	bool present;
};

struct listing {
	struct var_table *table; /* referenced */
	size_t at;
	struct change *changes; /* sorted, each name once */
	size_t n, capacity, change_at;
};

static void
drop_changes(struct listing *l)
{
	while (l->n)
		free(l->changes[--l->n].name);
}

static void
listing_free(void *state)
{
	struct listing *l = state;

	var_table_unref(l->table);
	drop_changes(l);
	free(l->changes);
	free(l);
}

static void
add_change(struct listing *l, const char *name, bool present)
{
	if (*name == '_')
		return; /* private: never listed */
	if (l->n == l->capacity) {
		l->capacity = MAX(l->capacity * 2, (size_t)16);
		l->changes = xrealloc(l->changes, l->capacity * sizeof(*l->changes));
	}
	l->changes[l->n] = (struct change){xstrdup(name), l->n, present};
	l->n++;
}

static int
compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	int d = strcmp(x->name, y->name);

	return d ? d : (x->order < y->order) - (x->order > y->order);
}

/* Sorts the changes, and keeps the last one of each name. */
static void
settle_changes(struct listing *l)
{
	size_t kept = 0;

	if (l->n)
		qsort(l->changes, l->n, sizeof(*l->changes), compare_changes);
	for (size_t i = 0; i < l->n; i++)
		if (kept && strcmp(l->changes[kept - 1].name, l->changes[i].name) == 0)
			free(l->changes[i].name);
		else
			l->changes[kept++] = l->changes[i];
	l->n = kept;
}

static void
hide(void *listing, const char *name)
{
	add_change(listing, name, false);
}

static struct listing *
listing_new(const struct place *at, struct rank *k)
{
	struct listing *l = xcalloc(1, sizeof(*l));
	struct var_writer *w;
	struct subtask *j;

	l->table = var_table_ref(k->table);
	TAILQ_FOREACH (j, &k->queue, link) {
		if (j->w->kind == TASK_RESET) {
			drop_changes(l);
			l->at = var_table_count(l->table);
		}
		if ((j->w->kind == TASK_PUT && !j->w->payload.path) || j->w->kind == TASK_DEL ||
		    j->w->kind == TASK_MOVE)
			add_change(l, j->w->payload.name, j->w->kind == TASK_PUT);
		if (j->w->kind == TASK_MOVE)
			add_change(l, j->w->payload.to, true);
	}
	replacement_each(at, hide, l);
	TAILQ_FOREACH (w, &writers, link)
		if (writes_here(w, at))
			add_change(l, w->name, true);
	settle_changes(l);
	return l;
}

/* Writes the next name of the table and the changes, merged, to name. Returns false if there are no
 * more. */
static bool
listing_next(struct listing *l, char *name)
{
	while (l->at < var_table_count(l->table) || l->change_at < l->n) {
		const struct change *c = l->change_at < l->n ? &l->changes[l->change_at] : NULL;
		int d = -1;

		if (l->at < var_table_count(l->table)) {
			struct slice row = var_table_name(l->table, l->at);

			snprintf(name, ENTRY_NAME_SIZE, "%.*s", (int)row.n, row.p);
			d = c ? strcmp(name, c->name) : -1;
		} else {
			d = 1;
		}
		l->at += d <= 0;
		l->change_at += d >= 0;
		if (d < 0)
			return true;
		if (!c->present)
			continue;
		snprintf(name, ENTRY_NAME_SIZE, "%s", c->name);
		return true;
	}
	return false;
}

bool
var_names_next(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	struct rank *k = at->frame || c->state ? NULL : place_rank(at, NULL);

	if (at->frame)
		return frame_file_next_name(at, c, child, name);
	if (k)
		*c = (struct part_cursor){.state = listing_new(at, k), .free = listing_free};
	if (!c->state || !listing_next(c->state, name))
		return false;
	child->name = name;
	return true;
}
