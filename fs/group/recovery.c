/* Rebuilds the process group. engine/ddip_engine/groups/repair.py repairs the objects in a rank. */
#include "group/recovery.h"
#include "base/daemon.h"
#include "group/events.h"
#include "group/external.h"
#include "group/host.h"
#include "group/journal.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/store.h"
#include "group/task.h"
#include <errno.h>

/* TICK: the interval for unblocking ranks that wait for one that has died or failed, or a rank that
 * waits for ranks that wait for the rebuild. SPOILED, ALL: the time after which a rank that does
 * not rejoin is killed, if another has died in the meantime or if none has. */
enum { TICK_MS = 200, SPOILED_MS = 2000, ALL_MS = 30000 };

enum { FAILURES_MAX = 3 }; /* failures in a row to start or to rejoin before the group is stopped */

enum { TRACE_MAX = 800 }; /* characters of the report of what a rank could not repair */

static const char *const state_names[RECOVERY_STATES] = {
    [RECOVERY_WHOLE] = "whole",
    [RECOVERY_WANTED] = "wanted",
    [RECOVERY_REJOINING] = "rejoining",
    [RECOVERY_RETRY] = "retry",
    [RECOVERY_SPOILED] = "spoiled",
};

enum event {
	REQUESTED,
	BEGUN,
	FAILED,	  /* a rank could not rejoin, though it lives */
	DIED,	  /* a rank has, or the store */
	REJOINED, /* all ranks have */
	AGAIN,	  /* the same, but it was in vain */
	STOPPED,  /* the ranks end */
	EVENTS
};

static const char *const event_names[EVENTS] = {
    [REQUESTED] = "requested",
    [BEGUN] = "begun",
    [FAILED] = "failed",
    [DIED] = "died",
    [REJOINED] = "rejoined",
    [AGAIN] = "again",
    [STOPPED] = "stopped",
};

/* clang-format off */
static const struct {
	enum recovery_state next;
	const char *help; /* NULL: the event has no effect */
} table[RECOVERY_STATES][EVENTS] = {
    [RECOVERY_WHOLE] = {
	[REQUESTED] = {RECOVERY_WANTED, "a rank or a collective has failed, or `recover` was written"},
    },
    [RECOVERY_WANTED] = {
	[BEGUN]     = {RECOVERY_REJOINING, "once no cell runs and all ranks have processes, they rejoin; cells wait"},
	[STOPPED]   = {RECOVERY_WHOLE, "the ranks end"},
    },
    [RECOVERY_REJOINING] = {
	[FAILED]    = {RECOVERY_RETRY, "a rank could not rejoin; who waits for it is unblocked"},
	[DIED]      = {RECOVERY_SPOILED, "a rank or the store; who waits for it is unblocked, and killed after 2 s"},
	[REJOINED]  = {RECOVERY_WHOLE, "all ranks; cells go on"},
	[AGAIN]     = {RECOVERY_WANTED, "a rank that had rejoined dies"},
	[STOPPED]   = {RECOVERY_WHOLE, "the ranks end"},
    },
    [RECOVERY_RETRY] = {
	[DIED]      = {RECOVERY_SPOILED, "a rank or the store, too"},
	[AGAIN]     = {RECOVERY_WANTED, "the others have rejoined"},
	[REJOINED]  = {RECOVERY_WHOLE, "it has failed 4 times in a row; `error` says why"},
	[STOPPED]   = {RECOVERY_WHOLE, "the ranks end"},
    },
    [RECOVERY_SPOILED] = {
	[AGAIN]     = {RECOVERY_WANTED, "the others have rejoined or failed; the dead one is replaced"},
	[REJOINED]  = {RECOVERY_WHOLE, "it has failed 4 times in a row; `error` says why"},
	[STOPPED]   = {RECOVERY_WHOLE, "the ranks end"},
    },
};

/* clang-format on */

void
recovery_print(struct buf *out)
{
	for (int s = 0; s < RECOVERY_STATES; s++)
		for (int v = 0; v < EVENTS; v++)
			step_print(out, state_names[s], event_names[v],
			    state_names[table[s][v].next], table[s][v].help);
}

/* Returns false if the event has no effect. */
static bool
take(struct group *g, enum event event)
{
	if (!table[g->recovery.state][event].help)
		return false;
	g->recovery.state = table[g->recovery.state][event].next;
	return true;
}

void
recovery_reset(struct group *g)
{
	g->recovery.generation++;
	take(g, STOPPED);
	g->recovery.consecutive_failures = 0;
}

void
recovery_request(struct group *g, const char *reason)
{
	if ((g->life.state != G_READY && g->life.state != G_STARTING) || !take(g, REQUESTED))
		return;
	journal_event(g, "rebuild-wanted reason=%s", reason);
	journal_changed(g);
}

bool
recovery_pending(const struct group *g)
{
	return g->recovery.state != RECOVERY_WHOLE;
}

bool
recovery_tolerates(struct group *g)
{
	return ++g->recovery.consecutive_failures <= FAILURES_MAX;
}

void
recovery_kill(struct rank *k, const char *reason)
{
	rank_kill(k);
	/* the others wait for its replacement */
	if (k->kill_sent)
		recovery_request(k->g, reason);
}

bool
recovery_running(const struct group *g)
{
	return g->recovery.rejoining > 0;
}

static void
set_rejoining(struct rank *k, bool is)
{
	k->g->recovery.rejoining += is - k->rejoining;
	k->rejoining = is;
}

bool
recovery_waits_for_cells(const struct group *g)
{
	struct rank_set own;
	int works = 0;

	if (g->recovery.state != RECOVERY_WANTED)
		return false;
	external_own(g, &own);
	RANK_SET_EACH (rank, &own) {
		struct rank *k = &g->ranks[rank];

		if (k->kill_sent || (k->state != R_READY && k->state != R_STARTED))
			return false;
		works += queue_works(k);
	}
	return works > 0;
}

static bool
one_is_killed(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].kill_sent)
			return true;
	return false;
}

static void on_tick(void *arg);

static void
whole(struct group *g)
{
	struct err e = {0};

	if (g->recovery.state == RECOVERY_REJOINING) {
		g->recovery.consecutive_failures = 0;
		journal_event(g, "recovered generation=%u", g->recovery.generation);
	} else {
		fail(&e, EREMOTEIO,
		    "the process group could not be rebuilt, %d times in a row: collectives fail "
		    "until restart",
		    g->recovery.consecutive_failures);
		journal_fail(g, &e, "recover");
		journal_event(g, "recover-failed generation=%u", g->recovery.generation);
	}
	take(g, REJOINED);
	journal_changed(g);
	event_rebuilt(g);
}

/* Completes the rebuild if all ranks have rejoined. If one dies, it is made again once its
 * replacement runs. */
static void
done_if_so(struct group *g)
{
	if (recovery_running(g) || g->life.state != G_READY || !recovery_pending(g))
		return;
	if (!external_others_are(g, R_READY) || one_is_killed(g) ||
	    (g->recovery.state != RECOVERY_REJOINING && recovery_tolerates(g))) {
		take(g, AGAIN);
		recovery_begin(g);
		return;
	}
	loop_timer_del(g->recovery.timer);
	g->recovery.timer = NULL;
	whole(g);
}

static void
on_rebuilt(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct group *g = k->g;
	struct slice not_repaired;
	struct err what = {0};

	if (!m) {
		journal_fail(g, e, "recover");
		take(g, FAILED);
	} else if (wire_unpack(m, Rrebuild, NULL, &not_repaired) == 0 && not_repaired.n) {
		fail(&what, EREMOTEIO, "rank %d, after the process group was rebuilt: %.*s",
		    k->number, (int)MIN(not_repaired.n, (size_t)TRACE_MAX), not_repaired.p);
		journal_fail(g, &what, "recover");
	}
	recovery_rejoined(k);
}

/* Unblocks a rank that waits for one that died. A rank that is joining has nothing to lose and may
 * be waiting for an incoming connection, where there is no socket to shut down: it is killed. */
static void
unblock(struct rank *k)
{
	if (!k->rejoining)
		return;
	if (k->state == R_INIT)
		recovery_kill(k, "rank-killed");
	else
		rank_abort(k, true);
}

/* Breaks a deadlock: cells wait for the rebuild, the rebuild waits for a rank, and that rank waits
 * in a collective for those cells. It has `grace` seconds to get out. */
static void
unblock_stuck(struct group *g)
{
	bool waited = false;

	if (!recovery_pending(g) || g->life.state != G_READY || g->set.grace < 0)
		return;
	for (int i = 0; i < g->size; i++)
		waited |= !queue_works(&g->ranks[i]) && !TAILQ_EMPTY(&g->ranks[i].queue);
	for (int i = 0; waited && i < g->size; i++)
		if (queue_works(&g->ranks[i]))
			rank_abort_stuck(&g->ranks[i], g->set.grace);
	g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
}

/* Appends where the ranks look for the store. The setting master_addr does not follow it to another
 * host. */
static void
add_store(const struct group *g, struct buf *out)
{
	if (!store_wanted(g) || hosts_private(g))
		return;
	buf_addf(
	    out, "; they look for the store, which is on %s, at ", host_in_words(g->store.host));
	host_env_master(g, out);
	buf_addf(out, " port %u", g->store.port);
	if (*g->set.hosts.master_addr && g->store.moved)
		buf_addf(out,
		    " (master_addr), but it has moved there from a lost host: stop, and set "
		    "master_addr to an address of %s, or to auto",
		    host_in_words(g->store.host));
}

static bool
is_late(const struct rank *k)
{
	return k->rejoining && !k->kill_sent;
}

/* Kills the ranks that have not rejoined in time, and tells what they waited for. */
static void
kill_late(struct group *g, uint64_t limit_ms)
{
	struct buf late = {0};
	struct err e = {0};

	for (int i = 0; i < g->size; i++)
		if (is_late(&g->ranks[i]))
			buf_addf(&late, "%s%d", late.n ? "," : "", i);
	if (!late.n)
		return;
	if (g->recovery.state != RECOVERY_SPOILED)
		add_store(g, &late);
	fail(&e, ETIMEDOUT, "ranks that did not rejoin the process group in %d s%s are killed: %s",
	    (int)(limit_ms / MS_PER_S),
	    g->recovery.state == RECOVERY_SPOILED ? ", after another one had died," : "", late.p);
	journal_fail(g, &e, "recover");
	journal_event(g, "recover-late %s", e.text);
	buf_free(&late);
	for (int i = 0; i < g->size; i++)
		if (is_late(&g->ranks[i]))
			recovery_kill(&g->ranks[i], "rank-killed");
}

/* Unblocks repeatedly, because a rank may only have been about to wait. One that has not rejoined
 * in time never will. */
static void
on_tick(void *arg)
{
	struct group *g = arg;
	bool spoiled = g->recovery.state == RECOVERY_SPOILED;
	bool in_vain = spoiled || g->recovery.state == RECOVERY_RETRY;
	uint64_t limit = spoiled ? SPOILED_MS : ALL_MS;
	bool late = now_ns() - g->recovery.began > limit * NS_PER_MS;

	g->recovery.timer = NULL;
	if (!recovery_running(g)) {
		unblock_stuck(g);
		return;
	}
	if (late)
		kill_late(g, limit);
	for (int i = 0; !late && in_vain && i < g->size; i++)
		unblock(&g->ranks[i]);
	g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
}

bool
recovery_begin(struct group *g)
{
	struct rank_set own;
	bool whole;

	if (g->life.state != G_READY || !recovery_pending(g))
		return !recovery_pending(g);
	if (recovery_running(g) || (store_wanted(g) && !g->store.listening))
		return false;
	external_own(g, &own);
	RANK_SET_EACH (rank, &own) {
		struct rank *k = &g->ranks[rank];

		if (queue_works(k)) {
			if (!g->recovery.timer)
				g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
			return false;
		}
		if (k->kill_sent || (k->state != R_READY && k->state != R_STARTED))
			return false;
	}
	take(g, BEGUN);
	g->recovery.generation++;
	g->recovery.began = now_ns();
	journal_event(g, "recover generation=%u", g->recovery.generation);
	loop_timer_del(g->recovery.timer);
	g->recovery.timer = loop_timer(daemon_.loop, TICK_MS, on_tick, g);
	store_addresses(g);
	whole = !external_any(g);
	RANK_SET_EACH (rank, &own)
		whole = whole && g->ranks[rank].state != R_STARTED;
	RANK_SET_EACH (rank, &own) {
		struct rank *k = &g->ranks[rank];

		set_rejoining(k, true);
		if (k->state == R_STARTED)
			rank_join(k);
		else
			rank_rejoin(k, whole, on_rebuilt);
	}
	return false;
}

void
recovery_rejoined(struct rank *k)
{
	set_rejoining(k, false);
	done_if_so(k->g);
}

/* A rebuild in progress can no longer succeed. */
static void
spoil(struct group *g)
{
	take(g, DIED);
	for (int i = 0; i < g->size; i++)
		unblock(&g->ranks[i]);
}

void
recovery_rank_died(struct rank *k)
{
	set_rejoining(k, false);
	recovery_request(k->g, "rank-died");
	spoil(k->g);
}

void
recovery_store_died(struct group *g)
{
	recovery_request(g, "store-died");
	spoil(g);
}

void
recovery_stop(struct group *g)
{
	loop_timer_del(g->recovery.timer);
	g->recovery.timer = NULL;
	take(g, STOPPED);
	for (int i = 0; i < g->size; i++)
		set_rejoining(&g->ranks[i], false);
}
