/* What runs in a group and what waits there, as users see it. */
#include "group/queue_list.h"
#include "base/plain.h"
#include "group/cell.h"
#include "group/queue.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRAM_MAX = 80 }; /* bytes of a program's name */

static const char *const kinds[TASK_KINDS] = {[TASK_RUN] = "cell",
    [TASK_PUT] = "push",
    [TASK_DEL] = "remove",
    [TASK_MOVE] = "rename",
    [TASK_RESET] = "reset",
    [TASK_FREE] = "free",
    [TASK_SELFTEST] = "selftest",
    [TASK_CLONE] = "clone",
    [TASK_STEER] = "steer"};

/* Appends the name of a task in `queue`: a cell's number; of other tasks the kind and a number,
 * such as "push17". */
static void
add_id(const struct task *w, struct buf *out)
{
	if (w->cell)
		buf_addf(out, "%d", w->cell->number);
	else
		buf_addf(out, "%s%u", kinds[w->kind], w->owner.serial);
}

/* ---- all tasks of the queues ---- */

/* A task is in the queues of several ranks: is this its first subtask that has not ended? */
static bool
is_first(const struct subtask *j)
{
	const struct subtask *first = j->w->subtasks;

	while (first->state == SUBTASK_DONE)
		first++;
	return j == first;
}

static int
by_serial(const void *a, const void *b)
{
	const struct task *const *x = a, *const *y = b;

	return ((*x)->owner.serial > (*y)->owner.serial) -
	       ((*x)->owner.serial < (*y)->owner.serial);
}

/* The tasks that have not ended, in the order of submission. The caller frees the list. */
static struct task **
collect(struct group *g, size_t *n)
{
	struct task **all = NULL;
	size_t room = 0;
	struct subtask *j;

	*n = 0;
	for (int i = 0; i < g->size; i++)
		TAILQ_FOREACH (j, &g->ranks[i].queue, link) {
			if (!is_first(j))
				continue;
			if (*n == room) {
				room = MAX(2 * room, (size_t)16);
				all = xrealloc(all, room * sizeof(struct task *));
			}
			all[(*n)++] = j->w;
		}
	if (*n)
		qsort(all, *n, sizeof(struct task *), by_serial);
	return all;
}

/* ---- queue ---- */

static void
add_task(const struct task *w, struct record *out)
{
	struct buf b = {0};

	add_id(w, &b);
	record_begin(out, NULL);
	record_text(out, "id", b.p);
	record_text(out, "kind",
	    task_is_program(w)	 ? "program"
	    : w->payload.watches ? "watch"
				 : kinds[w->payload.steer ? TASK_STEER : w->kind]);
	record_text(out, "state", task_state(w));
	record_text(out, "name", w->payload.name);
	task_ranks(w, out);
	record_real(out, "seconds", w->begun ? task_seconds(w) : now_wall() - w->when.queued, 1);
	if (w->owner.pid) {
		b.n = 0;
		plain_clip(&b, slice_text(w->owner.program), PROGRAM_MAX, true);
		record_number(out, "pid", w->owner.pid);
		if (w->owner.uid == (uid_t)-1)
			record_none(out, "uid");
		else
			record_number(out, "uid", w->owner.uid);
		record_text(out, "program", b.n ? b.p : NULL);
	} else {
		record_none(out, "pid");
		record_none(out, "uid");
		record_none(out, "program");
	}
	record_end(out);
	buf_free(&b);
}

void
queue_list(struct group *g, struct record *out)
{
	size_t n;
	struct task **all = collect(g, &n);

	record_begin_list(out, NULL);
	for (size_t i = 0; i < n; i++)
		add_task(all[i], out);
	record_end_list(out);
	free(all);
}

void
queue_list_owner(const struct task *w, struct buf *out)
{
	if (!w->owner.pid)
		return;
	buf_adds(out, " of ");
	if (*w->owner.program) {
		plain_clip(out, slice_text(w->owner.program), PROGRAM_MAX, true);
		buf_addf(out, " (pid %d)", (int)w->owner.pid);
	} else {
		buf_addf(out, "pid %d", (int)w->owner.pid);
	}
}

/* ---- cancel ---- */

/* The task with this name; NULL: none, or it has ended. */
static struct task *
find(struct group *g, const char *id)
{
	size_t n;
	struct task **all = collect(g, &n), *found = NULL;
	struct buf b = {0};

	for (size_t i = 0; i < n && !found; i++) {
		b.n = 0;
		add_id(all[i], &b);
		if (strcmp(b.p, id) == 0)
			found = all[i];
	}
	buf_free(&b);
	free(all);
	return found;
}

/* Returns 0 if it can be taken from the queue. */
static int
check(struct group *g, const char *id, struct err *e)
{
	struct task *w = find(g, id);
	struct cell *c = w ? NULL : cell_find(g, (int)strtol(id, NULL, 10));
	struct buf b = {0};

	if (c) {
		add_id(c->w, &b);
		if (strcmp(b.p, id) != 0)
			c = NULL;
		buf_free(&b);
	}
	if (c)
		return fail(e, EBUSY, "cell %s has ended: %s", id, task_state(c->w));
	if (!w)
		return fail(e, ENOENT, "nothing with the number '%.40s' is queued: cat %s/queue",
		    id, g->name);
	if (!w->begun)
		return 0;
	queue_list_owner(w, &b);
	fail(e, EBUSY, "%s%s%s is running: to end it, interrupt it", w->cell ? "cell " : "", id,
	    b.n ? b.p : "");
	buf_free(&b);
	return -e->no;
}

int
queue_list_cancel(struct group *g, char **ids, int n, struct err *e)
{
	for (int i = 0; i < n; i++)
		if (check(g, ids[i], e) < 0)
			return -e->no;
	g->queue_held = true; /* what is yet to be taken must not begin */
	for (int i = 0; i < n; i++) {
		struct task *w = find(g, ids[i]); /* NULL: it is named twice */

		if (w)
			task_cancel(w, ECANCELED, "dropped from the queue by cancel");
	}
	g->queue_held = false;
	queue_pump_all(g);
	return 0;
}
