/*
 * Decides what follows when the processes of a group start, join, fail and die: which rank is
 * replaced, and when to give up.
 */
#include "group/processes.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/recovery.h"
#include "group/store.h"
#include "host/agent.h"
#include <errno.h>

void
processes_store_started(struct group *g)
{
	struct err e;

	lifecycle_take(g, LIFE_STARTED, &e);
}

void
processes_rank_started(struct rank *k)
{
	struct err e;

	journal_event(k->g, "rank %d pid=%d how=%s", k->number, (int)k->pid, k->spawn_method);
	lifecycle_take(k->g, LIFE_STARTED, &e);
}

void
processes_rank_ready(struct rank *k)
{
	struct err e;

	if (k->g->life.state == G_READY)
		recovery_rejoined(k);
	else
		lifecycle_take(k->g, LIFE_JOINED, &e);
}

void
processes_rank_join_failed(struct rank *k, const struct err *e)
{
	struct err why = *e;

	if (k->g->life.state == G_READY) {
		journal_fail(k->g, e, "recover");
		recovery_kill(k, "rank-killed"); /* and another one is started */
	} else {
		lifecycle_take(k->g, LIFE_FAILED, &why);
	}
}

void
processes_rank_lost(struct rank *k, const struct err *why)
{
	/* before the next cell of any rank can begin */
	if (k->g->life.state == G_READY)
		recovery_request(k->g, "rank-died");
	queue_lost(k, why);
}

/* The agent that started the ranks, whoever serves now. */
static bool
agent_gone(const struct group *g)
{
	return !g->agent->conn || g->agent->serial != g->agent_serial;
}

/* Its process has ended, or its agent has. What it ran has failed already. */
void
processes_rank_died(struct rank *k, const char *how)
{
	struct group *g = k->g;
	bool early = k->died_as != R_READY;
	struct err e = {0};

	rank_set_dead(k, how);
	if (g->life.state == G_STOPPING || g->life.state == G_RESTARTING) {
		lifecycle_take(g, LIFE_ENDED, &e);
		return;
	}
	journal_event(g, "rank %d exit %s", k->number, how);
	fail(&e, EHOSTDOWN, "rank %d died: %.200s%s%s", k->number, how,
	    k->stderr_tail && *k->stderr_tail ? "\n" : "", k->stderr_tail ? k->stderr_tail : "");
	if (g->life.state == G_STARTING || agent_gone(g) || (early && !recovery_tolerates(g))) {
		lifecycle_take(g, LIFE_FAILED, &e);
		return;
	}
	journal_fail(g, &e, "rank");
	recovery_rank_died(k);
	rank_spawn(k);
	recovery_rejoined(k); /* it may be the last that the others waited for */
}

void
processes_rank_spawn_failed(struct rank *k, const struct err *e)
{
	struct err why = *e;

	lifecycle_take(k->g, LIFE_FAILED, &why);
	lifecycle_take(k->g, LIFE_ENDED, &why);
}

void
processes_store_died(struct group *g, bool had_started, const struct err *e)
{
	struct err why = *e;

	if (g->life.state == G_READY && !agent_gone(g) && (had_started || recovery_tolerates(g))) {
		/* its keys are gone: all join again at the new one, which listens at the same port
		 */
		journal_fail(g, e, "store");
		store_spawn(g);
		recovery_store_died(g);
		return;
	}
	lifecycle_take(g, LIFE_FAILED, &why);
	lifecycle_take(g, LIFE_ENDED, &why);
}
