/* The escalation: from a signal to SIGKILL, each step after its time. */
#include "group/escalation.h"
#include "group/cell.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/rank.h"
#include <errno.h>
#include <string.h>

enum { AGAIN_MS = 100, SECOND_STEP_MS = 1000, LAST_STEP = 3 };

static void
step_later(void *arg)
{
	struct work *w = arg;

	w->escalation = NULL;
	escalation_step(w);
}

/* The first step may have found a rank just before it went into a collective. */
static void
abort_again(void *arg)
{
	struct work *w = arg;

	for (int i = 0; i < w->n; i++)
		if (w->jobs[i].state == JOB_SENT)
			rank_abort(w->jobs[i].k, false);
	w->escalation = loop_timer(daemon_.loop, SECOND_STEP_MS - AGAIN_MS, step_later, w);
}

static void
free_rank(struct job *j, int step)
{
	int cell = j->w->cell ? j->w->cell->number : 0;

	if (j->state != JOB_SENT)
		return;
	if (step == LAST_STEP) {
		group_kill_rank(j->k);
		return;
	}
	rank_interrupt(j->k, cell);
	rank_abort(j->k, step > 1);
}

void
escalation_step(struct work *w)
{
	struct group *g = w->g;

	loop_timer_del(w->escalation);
	w->escalation = NULL;
	if (w->step == LAST_STEP)
		return; /* killed already: their deaths are on the way */
	w->step++;
	if (w->cell)
		group_event(g, "cell %d freeing step=%d", w->cell->number, w->step);
	for (int i = 0; i < w->n; i++)
		free_rank(&w->jobs[i], w->step);
	if (w->step == 1)
		w->escalation = loop_timer(daemon_.loop, AGAIN_MS, abort_again, w);
	else if (w->step == 2 && g->set.killafter >= 0)
		w->escalation =
		    loop_timer(daemon_.loop, (uint64_t)(g->set.killafter * 1000), step_later, w);
}

void
escalation_failed(struct job *j)
{
	struct work *w = j->w;
	struct group *g = w->g;

	if (w->kind != WORK_RUN)
		return;
	group_event(g, "cell %d failed rank=%d errno=%s", w->cell->number, j->k->number,
	    err_name(j->err.no));
	if (w->escalation || w->step || g->set.grace < 0)
		return;
	w->escalation = loop_timer(daemon_.loop, (uint64_t)(g->set.grace * 1000), step_later, w);
}

static void
time_is_up(void *arg)
{
	struct work *w = arg;

	w->deadline = NULL;
	w->timed_out = true;
	group_event(w->g, "cell %d timeout", w->cell->number);
	escalation_step(w);
}

void
escalation_deadline(struct work *w)
{
	if (w->kind == WORK_RUN && w->g->set.timeout > 0)
		w->deadline =
		    loop_timer(daemon_.loop, (uint64_t)(w->g->set.timeout * 1000), time_is_up, w);
}

/* Did ranks come out of it differently? Then one may have left a collective half done. */
static bool
uneven(const struct work *w)
{
	for (int i = 1; i < w->n; i++)
		if (w->jobs[i].err.no != w->jobs[0].err.no)
			return true;
	return false;
}

/* The same number of collectives everywhere? Else one waits somewhere for who has not come, and
 * would meet the next cell's. */
static bool
even_collectives(const struct work *w)
{
	struct buf b = {0};
	bool even = true;

	for (int i = 0; i < w->n; i++) {
		even &= w->jobs[i].collectives == w->jobs[0].collectives;
		buf_addf(&b, " rank%d=%u", w->jobs[i].k->number, w->jobs[i].collectives);
	}
	if (!even)
		group_event(w->g, "cell %d uneven-collectives%s", w->cell->number, b.p);
	buf_free(&b);
	return even;
}

/* May an external rank, whose collectives nobody can count, wait for one that this cell began? */
static bool
leaves_external(const struct work *w)
{
	return w->err.no != ENOEXEC && external_any(w->g);
}

void
escalation_outcome(struct work *w)
{
	if (w->kind != WORK_RUN || w->dropped || w->g->size == 1)
		return;
	if (!even_collectives(w) || w->step || (w->err.no && (uneven(w) || leaves_external(w))))
		w->g->recovery.needed = true;
}
