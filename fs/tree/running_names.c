/* Asks running ranks for their variables. One that does not answer soon keeps its last table. */
#include "tree/running_names.h"
#include "group/external.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/registry.h"
#include "tree/question.h"
#include <errno.h>
#include <stdlib.h>

/* A request to one rank. Freed when the rank's agent has answered. */
struct asked {
	struct question q;
	struct running_names *n; /* NULL: nobody waits for it any longer */
	struct rank *k;
	struct group *g;  /* referenced */
	uint64_t running; /* the tag of the subtask that runs meanwhile */
};

struct running_names {
	struct asked **asked; /* NULL: has answered */
	int count, left;
	void (*done)(void *arg);
	void *arg;
};

static void
names_free(struct running_names *n)
{
	free(n->asked);
	free(n);
}

/* Nobody waits for this rank's answer any longer. */
static void
leave(struct asked *a)
{
	struct running_names *n = a->n;

	for (int i = 0; i < n->count; i++)
		if (n->asked[i] == a)
			n->asked[i] = NULL;
	question_drop(&a->q);
	a->n = NULL;
	if (--n->left > 0)
		return;
	n->done(n->arg);
	names_free(n);
}

/* Later tables come with the end of the cell: this one must not replace them. */
static bool
still_runs(const struct asked *a)
{
	struct subtask *j = a->g->gone ? NULL : queue_running(a->k);

	return j && j->tag == a->running && a->k->slot == a->q.slot &&
	       rank_agent(a->k) == a->q.agent;
}

static void
on_table(struct question *q, struct msg *m, const struct err *e)
{
	struct asked *a = (struct asked *)q;
	struct slice table;
	struct err why = {0};

	if (m && wire_unpack(m, Rget, &why, NULL, NULL, NULL, NULL, &table) == 0 && still_runs(a))
		rank_set_table(a->k, table);
	if (a->n)
		leave(a);
	group_unref(a->g);
	free(a);
}

static void
on_late(struct question *q)
{
	leave((struct asked *)q);
}

static bool
can_ask(struct rank *k)
{
	struct subtask *j = queue_running(k);

	return j && task_is_cell(j->w) && j->state == SUBTASK_SENT && k->state == R_READY &&
	       agent_slot_lives(rank_agent(k), k->slot);
}

static void
ask(struct running_names *n, struct rank *k)
{
	static const struct question_ops ops = {.take = on_table, .late = on_late};
	struct asked *a = xcalloc(1, sizeof(*a));

	*a = (struct asked){
	    {.ops = &ops}, .n = n, .k = k, .g = group_ref(k->g), .running = queue_running(k)->tag};
	n->asked[n->count++] = a;
	n->left++;
	question_begin(&a->q, k, Tget);
	agent_send(a->q.agent, Tget, 0, a->q.slot, a->q.tag, -1, slice_text("__main__"),
	    slice_text("table"), slice_text(""));
}

struct running_names *
running_names_ask(struct group *g, int rank, void (*done)(void *arg), void *arg)
{
	struct running_names *n = xcalloc(1, sizeof(*n));

	*n = (struct running_names){.done = done, .arg = arg};
	n->asked = xcalloc((size_t)g->size + 1, sizeof(struct asked *));
	for (int i = 0; i < g->size; i++)
		if ((rank < 0 || rank == i) && can_ask(&g->ranks[i]))
			ask(n, &g->ranks[i]);
	if (n->left)
		return n;
	names_free(n);
	return NULL;
}

void
running_names_cancel(struct running_names *n)
{
	for (int i = 0; i < n->count; i++) {
		struct asked *a = n->asked[i];

		if (!a)
			continue;
		question_drop(&a->q);
		a->n = NULL;
	}
	names_free(n);
}

/* ---- directories ---- */

static void
listed(void *arg)
{
	struct req *r = arg;

	r->waits_for = NULL;
	req_done(r, 0);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	running_names_cancel(r->waits_for);
	r->waits_for = NULL;
	req_done(r, -EINTR);
}

static int
names_open(struct file *f, struct req *r)
{
	const struct place *at = &f->node->at;
	int rank = at->rank < 0 ? external_first(at->g) : at->rank;
	struct running_names *n = running_names_ask(at->g, rank, listed, r);

	if (!n)
		return 0;
	r->waits_for = n;
	return req_park(r, interrupted);
}

const struct file_ops running_names_ops = {.open = names_open};
