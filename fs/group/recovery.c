/* The process group made anew after a failure, namespaces kept: under a new generation all ranks
 * meet again, new ones by Tinit, the others by Trebuild. Who heals what in a rank is
 * engine/heal.py. */
#include "group/recovery.h"
#include "base/daemon.h"
#include "group/external.h"
#include "host/agent.h"
#include "group/queue.h"
#include "group/rank.h"
#include <errno.h>

/* TICK: how often those who wait for a dead rank are freed, or for one that waits for them. BROKEN,
 * ALL: until who does not come back is killed, if a rank has died meanwhile, and if none has. */
enum { TICK_MS = 200, BROKEN_MS = 2000, ALL_MS = 30000 };

bool
recovery_runs(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].meets)
			return true;
	return false;
}

static bool
one_is_doomed(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].doomed)
			return true;
	return false;
}

static void on_tick(void *arg);

/* All have come back: the group works again. */
static void
done_if_so(struct group *g)
{
	if (recovery_runs(g) || g->life.state != G_READY)
		return;
	if (!external_others_are(g, R_READY) || one_is_doomed(g)) {
		recovery_begin(g); /* one dies meanwhile: once more, when its successor is born */
		return;
	}
	loop_timer_del(g->recovery.timer);
	g->recovery.timer = NULL;
	if (g->recovery.failed && ++g->recovery.consecutive_failures <= LOSSES_MAX) {
		g->recovery.failed = false;
		recovery_begin(g);
		return;
	}
	g->recovery.needed = g->recovery.failed = false;
	g->recovery.consecutive_failures = 0;
	group_event(g, "recovered generation=%u", g->recovery.generation);
	group_changed(g);
	group_settle(g);
	queue_pump_all(g);
}

static void
on_rebuilt(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct group *g = k->g;
	struct slice unhealed;
	struct err what = {0};

	if (!m) {
		group_fail(g, e, "recover");
		g->recovery.failed = true;
	} else if (wire_unpack(m, NULL, &unhealed) == 0 && unhealed.n) {
		fail(&what, EREMOTEIO, "rank %d, after the process group was made anew: %.*s",
		    k->number, (int)MIN(unhealed.n, (size_t)800), unhealed.p);
		group_fail(g, &what, "recover");
	}
	recovery_came_back(k);
}

/* Frees who waits for a rank that died: one that joins has nothing to lose, and waits perhaps for a
 * connection to come, where no socket can be shut down. */
static void
let_go(struct rank *k)
{
	if (!k->meets)
		return;
	if (k->state == R_INIT)
		group_kill_rank(k);
	else
		rank_abort(k, true);
}

/* Cells wait for the rebuild, the rebuild for a rank, and that one in a collective for those cells:
 * it has `grace` to end. */
static void
free_stuck(struct group *g)
{
	bool waited = false;

	if (!g->recovery.needed || g->life.state != G_READY || g->set.grace < 0)
		return;
	for (int i = 0; i < g->size; i++)
		waited |= !queue_works(&g->ranks[i]) && !TAILQ_EMPTY(&g->ranks[i].queue);
	for (int i = 0; waited && i < g->size; i++)
		if (queue_works(&g->ranks[i]))
			rank_abort_stuck(&g->ranks[i], g->set.grace);
	g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
}

/* Freed again and again, since it may have been about to wait only. Whoever has not come back at
 * last never will. */
static void
on_tick(void *arg)
{
	struct group *g = arg;
	uint64_t limit = g->recovery.broken ? BROKEN_MS : ALL_MS;
	bool late = now_ns() - g->recovery.began > limit * 1000000;

	g->recovery.timer = NULL;
	if (!recovery_runs(g)) {
		free_stuck(g);
		return;
	}
	for (int i = 0; i < g->size; i++) {
		struct rank *k = &g->ranks[i];

		if (late && k->meets) {
			group_event(g, "recover-late killing=%d", i);
			group_kill_rank(k);
		} else if (g->recovery.broken) {
			let_go(k);
		}
	}
	g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
}

bool
recovery_begin(struct group *g)
{
	int own[MAX_RANKS], n;

	if (g->life.state != G_READY || !g->recovery.needed)
		return !g->recovery.needed;
	if (recovery_runs(g) || (group_wants_store(g) && !g->store.listening))
		return false;
	n = external_own(g, own);
	for (int i = 0; i < n; i++) {
		struct rank *k = &g->ranks[own[i]];

		if (queue_works(k)) {
			if (!g->recovery.timer)
				g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
			return false;
		}
		if (k->doomed || (k->state != R_READY && k->state != R_BORN))
			return false;
	}
	g->recovery.generation++;
	g->recovery.broken = false;
	g->recovery.began = now_ns();
	group_event(g, "recover generation=%u", g->recovery.generation);
	loop_timer_del(g->recovery.timer);
	g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
	for (int i = 0; i < n; i++) {
		struct rank *k = &g->ranks[own[i]];

		k->meets = true;
		if (k->state == R_BORN)
			rank_join(k);
		else
			agent_send(g->agent, Trebuild, 0, k->slot,
			    agent_tag(g->agent, k->slot, on_rebuilt, k), -1,
			    g->recovery.generation);
	}
	return false;
}

void
recovery_came_back(struct rank *k)
{
	k->meets = false;
	done_if_so(k->g);
}

void
recovery_lost(struct rank *k)
{
	k->meets = false;
	recovery_store_lost(k->g);
}

void
recovery_store_lost(struct group *g)
{
	g->recovery.needed = g->recovery.broken = true;
	for (int i = 0; i < g->size; i++)
		let_go(&g->ranks[i]);
}

void
recovery_call_off(struct group *g)
{
	loop_timer_del(g->recovery.timer);
	g->recovery.timer = NULL;
	g->recovery.needed = false;
	for (int i = 0; i < g->size; i++)
		g->ranks[i].meets = false;
}
