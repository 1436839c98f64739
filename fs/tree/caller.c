/* Recognises calls from ranks: whose they are, and whether they would wait for themselves. */
#include "tree/caller.h"
#include "group/cell.h"
#include "group/hosts.h"
#include "group/queue.h"
#include "group/registry.h"
#include "group/task.h"
#include "proc.h"
#include "tree/tree.h"
#include <errno.h>

enum { DEPTH_MAX = 64 };

static struct rank *
rank_of_pid(pid_t pid)
{
	struct group *g;

	TAILQ_FOREACH (g, &groups, link)
		for (int i = 0; i < g->size; i++)
			if (hosts_local_pid(&g->ranks[i]) == pid)
				return &g->ranks[i];
	return NULL;
}

struct rank *
caller_rank(pid_t pid)
{
	for (int depth = 0; pid > 1 && depth < DEPTH_MAX; depth++) {
		struct rank *k = rank_of_pid(pid);

		if (k)
			return k;
		pid = proc_parent(pid);
	}
	return NULL;
}

/* The rank that r comes from. Who reads on and on is looked for once: that goes through all its
 * ancestors. */
static struct rank *
rank_of(const struct req *r)
{
	pid_t process = req_process(r);
	struct rank *k;

	if (r->file && process && r->file->outsider == process)
		return NULL;
	k = caller_rank(process);
	if (r->file && !k)
		r->file->outsider = process;
	return k;
}

/* ---- who waits for whom ---- */

/* Marks all ranks that this task still needs. True: some are new. */
static bool
mark_task(struct task *w)
{
	bool changed = false;

	for (int i = 0; i < w->n; i++) {
		struct rank *k = w->subtasks[i].k;

		if (w->subtasks[i].state == SUBTASK_DONE || k->awaited)
			continue;
		k->awaited = changed = true;
	}
	return changed;
}

/* Does r come from a rank that is waited for? Then so is what it waits for. */
static bool
mark_waiter(const struct req *r, struct task *w)
{
	struct rank *k = w->done ? NULL : rank_of(r);

	return k && k->awaited && mark_task(w);
}

/* A task in the queue of a rank that is waited for: one that has not begun needs all its ranks to
 * begin, and a push all of them to end. A running cell ends on each rank by itself. */
static bool
mark_subtask(struct subtask *j)
{
	struct task *w = j->w;
	struct req *r;
	bool changed = false;

	if (j->k->awaited && (task_in_two_steps(w) || j->state == SUBTASK_QUEUED))
		changed = mark_task(w);
	TAILQ_FOREACH (r, &w->waiters, link)
		changed |= mark_waiter(r, w);
	return changed;
}

static bool
mark_group(struct group *g)
{
	bool changed = false;
	struct req *r;
	struct subtask *j;

	for (int i = 0; i < g->size; i++)
		TAILQ_FOREACH (j, &g->ranks[i].queue, link)
			changed |= mark_subtask(j);
	/* readers of a cell's `wait` and `stream` */
	TAILQ_FOREACH (r, &g->live, link)
		if (r->file->node->at.cell)
			changed |= mark_waiter(r, r->file->node->at.cell->w);
	return changed;
}

static void
mark_all(void)
{
	struct group *g;
	bool changed = true;

	while (changed) {
		changed = false;
		TAILQ_FOREACH (g, &groups, link)
			changed |= mark_group(g);
	}
}

static void
forget_marks(void)
{
	struct group *g;

	TAILQ_FOREACH (g, &groups, link)
		for (int i = 0; i < g->size; i++)
			g->ranks[i].awaited = false;
}

/* k wants to wait for the ranks that are marked. */
static int
check_marks(const struct rank *k, struct err *e)
{
	bool itself;

	mark_all();
	itself = k->awaited;
	forget_marks();
	if (!itself)
		return 0;
	return fail(e, EDEADLK,
	    "rank %d would wait for itself: its own work must end first (O_NONBLOCK only queues)",
	    k->number);
}

/* The rank that r comes from, if it has work that must end. */
static struct rank *
busy_caller(const struct req *r)
{
	struct rank *k = rank_of(r);

	return k && !TAILQ_EMPTY(&k->queue) ? k : NULL;
}

int
caller_check(struct group *g, const struct req *r, const int *ranks, int n, struct err *e)
{
	struct rank *k = group_busy(g) ? busy_caller(r) : NULL;

	if (!k)
		return 0;
	for (int i = 0; i < (n ? n : g->size); i++)
		g->ranks[n ? ranks[i] : i].awaited = true;
	return check_marks(k, e);
}

int
caller_check_cell(const struct cell *c, const struct req *r, struct err *e)
{
	struct rank *k = c->w->done ? NULL : busy_caller(r);

	if (!k)
		return 0;
	mark_task(c->w);
	return check_marks(k, e);
}

int
caller_check_group(struct group *g, const struct req *r, struct err *e)
{
	struct rank *k = rank_of(r);

	if (!k || k->g != g)
		return 0;
	return fail(e, EDEADLK,
	    "rank %d is of this group and can't wait for it (O_NONBLOCK only asks for it)",
	    k->number);
}
