/* One preemption signals every process of a job on every host. Cells are notified only once. */
#include "group/preempt.h"
#include "base/daemon.h"
#include "group/escalation.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/queue.h"
#include "group/registry.h"
#include "group/save.h"
#include "group/cell.h"
#include "group/task.h"
#include "signal_name.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

enum { SAME_S = 60 }; /* signals within this time belong to one preemption */

/* The cell that a rank runs, unless it is this one; NULL: none. */
static struct task *
running_on(struct rank *k, const struct cell *but)
{
	struct subtask *j = queue_outermost(k);

	return j && j->w->cell && j->w->cell != but ? j->w : NULL;
}

/* Preempts the running cells, except one. */
static void
preempt_now(struct group *g, const struct cell *but)
{
	uint64_t now = now_ns();
	bool any = false;

	for (int i = 0; i < g->size; i++) {
		struct task *w = running_on(&g->ranks[i], but);

		if (!w || w->escalation.asked == now)
			continue;
		w->escalation.asked = now;
		journal_event(g, "cell %d preempted", w->cell->number);
		escalation_interrupt(w, WHY_PREEMPTED);
		group_tell(cell_news, g, w->cell, CELL_PREEMPTED, -1);
		any = true;
	}
	if (!any)
		group_tell(cell_news, g, NULL, CELL_PREEMPTED, -1);
}

/* ---- a save within the running cell comes first ---- */

struct saving {
	struct task *w;
	void (*ended)(struct task *w);
	struct timer *timer; /* NULL: the time is up */
	bool within;	     /* the running cell, which is told when it has ended */
};

static void
save_ended(struct task *w)
{
	struct saving s = *(struct saving *)w->arg;
	struct group *g = w->g;
	struct err e = {0};

	loop_timer_del(s.timer);
	free(w->arg);
	w->arg = NULL;
	if (!s.timer && w->err.no) {
		fail(&e, ETIMEDOUT,
		    "save %s: not complete %g s after the signal, and ended; what is there is "
		    "whole",
		    g->set.on_preempt.save, g->set.on_preempt.within);
		journal_fail(g, &e, "on_preempt");
	}
	g->life.saves = false;
	w->ended = s.ended;
	w->ended(w);
	if (s.within && g->life.state == G_READY)
		preempt_now(g, NULL);
}

static void
on_late(void *arg)
{
	struct saving *s = arg;
	struct task *w = s->w;

	s->timer = NULL;
	if (!task_cancel(w, ETIMEDOUT, "it has not begun in the time that a preemption leaves"))
		escalation_interrupt(w, WHY_PREEMPTED);
}

static void
save_first(struct group *g)
{
	const struct preempt_settings *set = &g->set.on_preempt;
	struct err e = {0};
	struct cell *c = save_submit(g, "save", set->save, &e);
	struct saving *s;

	if (!c) {
		journal_fail(g, &e, "on_preempt");
		preempt_now(g, NULL);
		return;
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct saving){c->w, c->w->ended, NULL, c->w->payload.steer != NULL};
	s->timer = loop_timer(daemon_.loop, (uint64_t)(set->within * MS_PER_S), on_late, s);
	c->w->arg = s;
	c->w->ended = save_ended;
	g->life.saves = true;
	if (!s->within) /* no cell runs on all ranks */
		preempt_now(g, c);
}

/* Has each running cell been told a short while ago, so that its handler may be at work? */
static bool
are_told(struct group *g)
{
	uint64_t now = now_ns();
	bool any = false;

	for (int i = 0; i < g->size; i++) {
		const struct task *w = running_on(&g->ranks[i], NULL);

		if (!w)
			continue;
		any = true;
		if (w->escalation.why != WHY_PREEMPTED ||
		    now - w->escalation.asked >= SAME_S * NS_PER_S)
			return false;
	}
	return any;
}

void
preempt_cells(struct group *g, int signo, const char *host)
{
	bool save = *g->set.on_preempt.save, again = save && (g->life.saves || are_told(g));

	journal_event(g, "preempted signal=%s host=%s%s", signal_name(signo), host,
	    !again	    ? ""
	    : g->life.saves ? " again=saves"
			    : " again=told");
	if (again)
		return;
	if (save)
		save_first(g);
	else
		preempt_now(g, NULL);
}

bool
preempt_signal(int signo, const char *host)
{
	uint64_t now = now_ns();
	struct group *g;
	bool is_some = false, busy = false;

	TAILQ_FOREACH (g, &groups, link) {
		if (g->set.on_preempt.signo != signo)
			continue;
		is_some = true;
		busy |= group_busy(g);
		if (g->life.preempted && now - g->life.preempted < SAME_S * NS_PER_S)
			continue;
		g->life.preempted = now;
		preempt_cells(g, signo, host);
	}
	if (!is_some)
		note("host %s: signal %s: it is no group's on_preempt", host, signal_name(signo));
	return busy;
}

static void
on_own(void *arg, int signo)
{
	preempt_signal(signo, "-");
}

void
preempt_init(void)
{
	for (const int *signo = signal_preempts; *signo; signo++)
		if (*signo != SIGTERM)
			loop_signal(daemon_.loop, *signo, on_own, NULL);
}
