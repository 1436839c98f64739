/* Recognises requests that come from ranks: which rank, and whether it would wait for itself. */
#include "tree/caller.h"
#include "group/cell.h"
#include "group/host.h"
#include "group/queue.h"
#include "group/registry.h"
#include "group/task.h"
#include "proc.h"
#include "tree/tree.h"
#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, KNOWN_MAX = 8 };

/* A process and its ancestors, the nearest first, without init. */
struct lineage {
	int n;
	pid_t pids[DEPTH_MAX];
};

/* The lineages of the last processes that made requests: one that runs many cells is looked up
 * once. */
static struct known {
	struct lineage of;
	int pidfd; /* until it polls readable, the PID cannot have been reused */
} known[KNOWN_MAX];

static struct rank *
rank_of_pid(pid_t pid)
{
	struct group *g;

	TAILQ_FOREACH (g, &groups, link)
		for (int i = 0; i < g->size; i++)
			if (host_local_pid(&g->ranks[i]) == pid)
				return &g->ranks[i];
	return NULL;
}

static struct lineage
lineage_of(pid_t pid)
{
	struct lineage l = {0};

	for (; pid > 1 && l.n < DEPTH_MAX; pid = proc_parent(pid))
		l.pids[l.n++] = pid;
	return l;
}

/* The nearest rank in it. */
static struct rank *
rank_in(const struct lineage *l)
{
	struct rank *k = NULL;

	for (int i = 0; i < l->n && !k; i++)
		k = rank_of_pid(l->pids[i]);
	return k;
}

struct rank *
caller_rank(pid_t pid)
{
	struct lineage l = lineage_of(pid);

	return rank_in(&l);
}

static bool
has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) != 0;
}

static void
forget(struct known *a)
{
	if (a->of.n)
		close(a->pidfd);
	a->of.n = 0;
}

static struct known *
find_known(pid_t process)
{
	for (int i = 0; i < KNOWN_MAX; i++) {
		struct known *a = &known[i];

		if (!a->of.n || a->of.pids[0] != process)
			continue;
		if (!has_ended(a->pidfd))
			return a;
		forget(a);
	}
	return NULL;
}

/* If no pidfd can be had (none is left, or Linux before 5.3), the process is looked up each
 * time. */
static void
remember(const struct lineage *l)
{
	static int next;
	struct known *a = &known[next];
	int pidfd = l->n ? (int)syscall(SYS_pidfd_open, l->pids[0], 0) : -1;

	if (pidfd < 0)
		return;
	forget(a);
	*a = (struct known){.of = *l, .pidfd = pidfd};
	next = (next + 1) % KNOWN_MAX;
}

/* The rank that r comes from. A remembered lineage can be wrong only if it names a rank: an
 * ancestor may have exited, and another process may have its PID now. */
static struct rank *
rank_of(const struct req *r)
{
	pid_t process = req_process(r);
	struct known *a = find_known(process);
	struct lineage l;

	if (a && !rank_in(&a->of))
		return NULL;
	l = lineage_of(process);
	if (!a)
		remember(&l);
	return rank_in(&l);
}

/* ---- which rank waits for which ---- */

/* Marks all ranks that this task still needs. Returns true if any was unmarked. */
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

/* If r comes from an awaited rank, the ranks that r waits for are awaited too. */
static bool
mark_waiter(const struct req *r, struct task *w)
{
	struct rank *k = w->done ? NULL : rank_of(r);

	return k && k->awaited && mark_task(w);
}

/* A task in the queue of an awaited rank: to begin, it needs all its ranks; to end, a push needs
 * them all as well. A running cell ends on each rank independently. */
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

/* k wants to wait for the marked ranks. */
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
	    "rank %d would wait for its own running cell (O_NONBLOCK only queues)", k->number);
}

/* The rank that r comes from, if it has unfinished work. */
static struct rank *
busy_caller(const struct req *r)
{
	struct rank *k = rank_of(r);

	return k && !TAILQ_EMPTY(&k->queue) ? k : NULL;
}

int
caller_check(struct group *g, const struct req *r, const struct rank_set *ranks, struct err *e)
{
	struct rank *k = group_busy(g) ? busy_caller(r) : NULL;
	bool all;

	if (!k)
		return 0;
	all = rank_set_empty(ranks);
	for (int i = 0; i < g->size; i++)
		g->ranks[i].awaited = all || rank_set_has(ranks, i);
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
	    "rank %d belongs to this group and can't wait for it (O_NONBLOCK only requests it)",
	    k->number);
}
