/*
 * After a failure, `grace` gives the other ranks time to end by themselves. If each of them waits
 * in a collective for a rank that has ended its part, none can: they are freed without it.
 */
#include "base/daemon.h"
#include "group/cell.h"
#include "group/escalation.h"
#include "group/events.h"
#include "group/stall.h"
#include <stdlib.h>

enum { FIRST_MS = 200, AGAIN_MS = 300 };

/* A look at where the ranks of a cell are. */
struct look {
	struct stall_sample *sample;
	struct group *g;
	int cell;
};

static void on_time(void *arg);

static void
look_in(struct task *w, uint64_t ms)
{
	if (w->cell && !w->escalation.step && !w->escalation.vain_timer)
		w->escalation.vain_timer = loop_timer(daemon_.loop, ms, on_time, w);
}

static bool
all_wait_in_vain(const struct task *w, const struct stall_sample *sample)
{
	struct rank_set *waiting = xcalloc(1, sizeof(*waiting));
	bool all = true;

	stall_in_vain(sample, waiting);
	for (int i = 0; i < w->n; i++)
		all &= w->subtasks[i].state == SUBTASK_DONE ||
		       rank_set_has(waiting, w->subtasks[i].k->number);
	free(waiting);
	return all;
}

static void
on_sample(void *arg, struct slice text)
{
	struct look *l = arg;
	struct cell *c = l->g->gone ? NULL : cell_find(l->g, l->cell);

	(void)text;
	if (c && !c->w->done && all_wait_in_vain(c->w, l->sample))
		escalation_end_grace(c->w);
	else if (c && !c->w->done)
		look_in(c->w, AGAIN_MS);
	free(l);
}

static void
on_time(void *arg)
{
	struct task *w = arg;
	struct look *l;

	w->escalation.vain_timer = NULL;
	if (w->escalation.step)
		return;
	l = xmalloc(sizeof(*l));
	*l = (struct look){.g = w->g, .cell = w->cell->number};
	l->sample = stall_prepare(w->g, RECORD_WORDS, w->number, on_sample, l);
	stall_ask(l->sample);
}

void
event_task_failed(struct task *w)
{
	look_in(w, FIRST_MS);
}
