/* Asks a rank for the ticks of its clocks when G/status is opened. Its I/O thread answers, whatever
 * Python does; a process that does not run is not waited for. */
#include "tree/steps_file.h"
#include "group/cell.h"
#include "group/rank.h"
#include "group/registry.h"
#include "group/task.h"
#include "tree/question.h"
#include <errno.h>
#include <stdlib.h>

struct steps_open {
	struct question q;
	struct file *f;
	struct rank *k;
	struct group *g; /* referenced */
	int cell;
};

/* The text was made without the step. */
static void
answer(struct question *q)
{
	struct steps_open *s = (struct steps_open *)q;
	struct file *f = s->f;

	buf_clear(&f->text);
	question_answer(q, f->node->row->text(&f->node->at, &f->text, &q->r->err));
}

/* By which the steps of this cell are counted. */
static enum clock
clock_of(struct group *g, int cell, const uint32_t *ticks)
{
	const struct cell *c = cell_find(g, cell);
	enum clock clock = 0;

	if (c && c->clock != CLOCKS)
		return c->clock;
	while (clock < CLOCK_COLLECTIVE && !ticks[clock])
		clock++;
	return clock;
}

static void
on_steps(struct question *q, struct msg *m, const struct err *e)
{
	struct steps_open *s = (struct steps_open *)q;
	uint32_t ticks[CLOCKS];
	struct group_history *h = &s->g->history;

	if (m && !s->g->gone && s->k->cell == s->cell &&
	    wire_unpack(m, Rsteps, NULL, &ticks[CLOCK_OPTIMIZER], &ticks[CLOCK_FORWARD],
		&ticks[CLOCK_COLLECTIVE]) == 0) {
		h->step.clock = clock_of(s->g, s->cell, ticks);
		h->step.number = ticks[h->step.clock];
		h->step.cell = s->cell;
	}
	if (q->r)
		answer(q);
	group_unref(s->g);
	free(s);
}

static int
open_steps(struct file *f, struct req *r)
{
	static const struct question_ops ops = {.take = on_steps, .late = answer};
	struct group *g = f->node->at.g;
	struct steps_open *s;
	struct rank *k = NULL;

	for (int i = 0; i < g->size && !k; i++)
		if (g->ranks[i].cell &&
		    agent_slot_lives(rank_agent(&g->ranks[i]), g->ranks[i].slot))
			k = &g->ranks[i];
	if (!k)
		return 0;
	s = xcalloc(1, sizeof(*s));
	*s = (struct steps_open){
	    {.ops = &ops, .r = r}, .f = f, .k = k, .g = group_ref(g), .cell = k->cell};
	question_begin(&s->q, k, Tsteps);
	agent_send(s->q.agent, Tsteps, 0, s->q.slot, s->q.tag, -1);
	return PARKED;
}

const struct file_ops steps_file_ops = {.open = open_steps};
