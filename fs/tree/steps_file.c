/* Asks a rank for the ticks of its clocks when G/status is opened. Its I/O thread answers, whatever
 * Python does; a process that does not run is not waited for. */
#include "tree/steps_file.h"
#include "base/patience.h"
#include "group/hosts.h"
#include "group/rank.h"
#include "group/registry.h"
#include "group/task.h"
#include "host/agent.h"
#include <errno.h>
#include <stdlib.h>

/* r and patience are cleared by whichever event answers first; the rest is freed when the rank
 * answers. */
struct steps_open {
	struct file *f;
	struct req *r; /* NULL: already answered */
	struct rank *k;
	struct group *g; /* referenced */
	int cell;
	struct patience *patience;
};

/* The text was made without the step. */
static void
answer(struct steps_open *s)
{
	struct req *r = s->r;

	s->r = NULL;
	patience_end(s->patience);
	s->patience = NULL;
	buf_clear(&s->f->text);
	req_done(r, s->f->node->row->text(&s->f->node->at, &s->f->text, &r->err));
}

static void
on_steps(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct steps_open *s = arg;
	uint32_t ticks[CLOCKS];
	struct group_history *h = &s->g->history;

	if (m && !s->g->gone && s->k->cell == s->cell &&
	    wire_unpack(m, Rsteps, NULL, &ticks[CLOCK_OPTIMIZER], &ticks[CLOCK_FORWARD],
		&ticks[CLOCK_COLLECTIVE]) == 0) {
		h->step.clock = 0;
		while (h->step.clock < CLOCK_COLLECTIVE && !ticks[h->step.clock])
			h->step.clock++;
		h->step.number = ticks[h->step.clock];
		h->step.cell = s->cell;
	}
	if (s->r)
		answer(s);
	group_unref(s->g);
	free(s);
}

static void
on_late(void *arg)
{
	struct steps_open *s = arg;

	s->patience = NULL;
	answer(s);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct steps_open *s = r->waits_for;

	s->r = NULL;
	patience_end(s->patience);
	s->patience = NULL;
	req_done(r, -EINTR);
}

static int
open_steps(struct file *f, struct req *r)
{
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
	*s = (struct steps_open){.f = f, .r = r, .k = k, .g = group_ref(g), .cell = k->cell};
	r->waits_for = s;
	req_park(r, interrupted);
	s->patience = patience_begin(hosts_local_pid(k), on_late, s);
	agent_send(rank_agent(k), Tsteps, 0, k->slot,
	    agent_tag(rank_agent(k), k->slot, Tsteps, on_steps, s), -1);
	return PARKED;
}

const struct file_ops steps_file_ops = {.open = open_steps};
