/* One preemption signals every process of a job on every host. Cells are notified only once. */
#include "group/preempt.h"
#include "base/daemon.h"
#include "group/escalation.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/registry.h"
#include "group/task.h"
#include "signal_name.h"
#include <signal.h>

enum { SAME_S = 60 }; /* signals within this time belong to one preemption */

void
preempt_cells(struct group *g, int signo, const char *host)
{
	uint64_t now = now_ns();
	bool any = false;

	journal_event(g, "preempted signal=%s host=%s", signal_name(signo), host);
	for (int i = 0; i < g->size; i++) {
		struct subtask *j = queue_outermost(&g->ranks[i]);

		if (!j || !j->w->cell || j->w->escalation.asked == now)
			continue;
		j->w->escalation.asked = now;
		journal_event(g, "cell %d preempted", j->w->cell->number);
		escalation_interrupt(j->w, WHY_PREEMPTED);
		group_tell(above.cell_news, g, j->w->cell, CELL_PREEMPTED, -1);
		any = true;
	}
	if (!any)
		group_tell(above.cell_news, g, NULL, CELL_PREEMPTED, -1);
}

bool
preempt_signal(int signo, const char *host)
{
	uint64_t now = now_ns();
	struct group *g;
	bool is_some = false, busy = false;

	TAILQ_FOREACH (g, &groups, link) {
		if (g->set.on_preempt != signo)
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
