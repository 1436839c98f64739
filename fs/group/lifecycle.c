/* The life cycle of a group: the table of states and events, and what each transition does. */
#include "group/lifecycle.h"
#include "base/daemon.h"
#include "group/escalation.h"
#include "group/events.h"
#include "group/external.h"
#include "group/facts.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/recovery.h"
#include "group/start.h"
#include "group/store.h"
#include "group/task.h"
#include <errno.h>
#include <string.h>

/* SAVING: from the interrupt and Nquit until all collectives are ended, since a program that
 * handles the signal itself may need them to save its state. POLITE: from then until SIGKILL. */
enum { SAVING_MS = 1000, POLITE_MS = 1000 };

/* From SIGKILL until a host that does not report the end of its processes is given up: its
 * connection may be broken. */
enum { SILENT_MS = 10000 };

static const char *const state_names[G_STATES] = {
    [G_NEW] = "new",
    [G_STARTING] = "starting",
    [G_READY] = "idle",
    [G_STOPPING] = "stopping",
    [G_RESTARTING] = "restarting",
    [G_STOPPED] = "stopped",
};

static const char *const event_names[LIFE_EVENTS] = {
    [LIFE_START] = "start",
    [LIFE_STOP] = "stop",
    [LIFE_RESTART] = "restart",
    [LIFE_FAILED] = "failed",
    [LIFE_STARTED] = "started",
    [LIFE_JOINED] = "joined",
    [LIFE_ENDED] = "ended",
};

/* The effect of an event in a state. */
struct transition {
	/* May the transition happen? 0: yes; -EAGAIN: not yet; any other -errno, with *e set:
	 * refused. NULL: always. */
	int (*guard)(struct group *g, struct err *e);
	enum group_state next;
	/* Called in the new state. why: the reason for LIFE_FAILED. NULL: nothing to do. */
	void (*action)(struct group *g, const struct err *why);
	const char *help; /* NULL: the event has no effect */
};

static void enter(struct group *g, enum group_state state);

const char *
lifecycle_state_name(const struct group *g)
{
	if (g->life.state == G_READY && g->hosts.lacking)
		return "lacking";
	if (g->life.state == G_READY && recovery_pending(g))
		return "recovering";
	return group_busy(g) ? "busy" : state_names[g->life.state];
}

/* ---- waiters ---- */

bool
lifecycle_settled(const struct group *g)
{
	switch (g->life.state) {
	case G_STARTING:
	case G_STOPPING:
	case G_RESTARTING:
		return false;
	case G_READY:
		return g->hosts.lacking ||
		       (external_others_are(g, R_READY) && !recovery_pending(g)) ||
		       recovery_waits_for_cells(g);
	default:
		return true;
	}
}

/* The errno for waiters once the state is settled; 0 if the request was fulfilled. */
static int
settled_errno(const struct group *g)
{
	if (g->life.state == G_READY)
		return g->hosts.lacking ? EHOSTDOWN : 0;
	return g->life.start_error.no;
}

/* The same for those who requested a start, for whom a stop is a failure. */
static int
started_errno(struct group *g)
{
	struct err e = {0};
	int no = settled_errno(g);

	if (no || g->life.state == G_READY)
		return no;
	fail(&e, ECANCELED, "the group was stopped before it was ready");
	journal_fail(g, &e, "start");
	return e.no;
}

static void
answer_all(struct req_list *waiters, int result)
{
	struct req *r;

	while ((r = TAILQ_FIRST(waiters))) {
		TAILQ_REMOVE(waiters, r, link);
		req_done(r, result);
	}
}

/* Answers those who wait for the requested state, if it is settled. */
static void
lifecycle_settle(struct group *g)
{
	if (!lifecycle_settled(g))
		return;
	answer_all(&g->life.waiters, -settled_errno(g));
	if (!TAILQ_EMPTY(&g->life.start_waiters))
		answer_all(&g->life.start_waiters, -started_errno(g));
}

static void
wait_interrupted(struct req *r, enum interrupt how)
{
	struct req_list *waiters = r->waits_for;

	TAILQ_REMOVE(waiters, r, link);
	req_done(r, how == DETACH ? 0 : -EINTR);
}

int
lifecycle_wait(struct group *g, struct req *r, bool for_start)
{
	struct req_list *waiters = for_start ? &g->life.start_waiters : &g->life.waiters;

	if (lifecycle_settled(g))
		return -(for_start ? started_errno(g) : settled_errno(g));
	r->waits_for = waiters;
	TAILQ_INSERT_TAIL(waiters, r, link);
	return req_park(r, wait_interrupted);
}

int
lifecycle_accepts(const struct group *g, struct err *e)
{
	if (g->gone)
		return fail(e, ENODEV, "the group %s is gone", g->name);
	if (g->life.state == G_STOPPED || g->life.state == G_STOPPING)
		return fail(e, ESRCH, "no engine runs: the group is %s (echo start > %s/ctl)",
		    state_names[g->life.state], g->name);
	if (g->life.state == G_READY && g->hosts.lacking)
		return fail(e, EHOSTDOWN,
		    "ranks have no place since their host was lost (%s/status tells which): name "
		    "other hosts, or write recover or restart to ctl",
		    g->name);
	return external_leaves_some(g, e);
}

/* ---- starting ---- */

static void
spawn_all(struct group *g, const struct err *why)
{
	recovery_reset(g);
	facts_forget_backend(g);
	g->life.phase_count = 0;
	buf_clear(&g->life.patches);
	g->life.started = now_ns();
	if (store_wanted(g))
		store_spawn(g);
	for (int i = 0; i < g->size; i++)
		if (!external_is(&g->ranks[i]))
			rank_spawn(&g->ranks[i]);
}

static int
all_started(struct group *g, struct err *e)
{
	if (store_wanted(g) && !g->store.listening)
		return -EAGAIN;
	return external_others_are(g, R_STARTED) ? 0 : -EAGAIN;
}

static void
join_all(struct group *g, const struct err *why)
{
	struct err e = {0};

	if (facts_check(g, &e) < 0) {
		lifecycle_take(g, LIFE_FAILED, &e);
		return;
	}
	rank_phase(g, "spawn_ms", (double)(now_ns() - g->life.started) / (double)NS_PER_MS);
	store_addresses(g);
	for (int i = 0; i < g->size; i++)
		if (!external_is(&g->ranks[i]))
			rank_join(&g->ranks[i]);
}

static int
all_joined(struct group *g, struct err *e)
{
	return external_others_are(g, R_READY) ? 0 : -EAGAIN;
}

static void
begin_cells(struct group *g, const struct err *why)
{
	g->life.ready = now_ns();
	rank_phase(g, "start_ms", (double)(g->life.ready - g->life.started) / (double)NS_PER_MS);
	queue_pump_all(g);
	recovery_begin(g); /* one may have been requested in the meantime */
	event_rested(g);
}

/* A rank was replaced: all rejoin. */
static void
rejoin(struct group *g, const struct err *why)
{
	recovery_begin(g);
	lifecycle_settle(g);
}

/* ---- stopping ---- */

static void
give_up_hosts(void *arg)
{
	struct group *g = arg;

	g->life.stop_timer = NULL;
	hosts_end_silent(g);
}

static void
kill_all(void *arg)
{
	struct group *g = arg;

	g->life.stop_timer = NULL;
	if (hosts_named(g))
		g->life.stop_timer = loop_timer(daemon_.loop, SILENT_MS, give_up_hosts, g);
	for (int i = 0; i < g->size; i++)
		rank_kill(&g->ranks[i]);
	store_kill(g);
}

static void
abort_all(void *arg)
{
	struct group *g = arg;

	for (int i = 0; i < g->size; i++)
		rank_abort(&g->ranks[i], true);
	g->life.stop_timer = loop_timer(daemon_.loop, POLITE_MS, kill_all, g);
}

/* Ends all processes, politely at first, and drops what is queued. */
static void
end_ranks(struct group *g, const char *text, enum interrupt_why why)
{
	struct err e = {0};

	recovery_stop(g);
	fail(&e, ECANCELED, "%s", text);
	queue_drop_all_queued(g, &e);
	for (int i = 0; i < g->size; i++) {
		struct rank *k = &g->ranks[i];
		struct subtask *j;

		if ((j = queue_running(k))) {
			escalation_signal(j, why);
			if (queue_outermost(k) != j)
				escalation_signal(queue_outermost(k), why);
			rank_abort(k, false);
		}
		rank_quit(k);
	}
	store_quit(g);
	if (!g->life.stop_timer)
		g->life.stop_timer = loop_timer(daemon_.loop, SAVING_MS, abort_all, g);
	hosts_end_connecting(g);
	lifecycle_take(g, LIFE_ENDED, &e); /* there may be no processes */
}

static void
stop_ranks(struct group *g, const struct err *why)
{
	end_ranks(g, "the group was stopped", WHY_STOPPED);
}

static void
restart_ranks(struct group *g, const struct err *why)
{
	end_ranks(g, "the group was restarted", WHY_RESTARTED);
}

/* Drops what is queued for a start that was cancelled or postponed. */
static void
drop_waiting(struct group *g, const struct err *why)
{
	static const struct err stopped = {ECANCELED, "the group was stopped"};

	queue_drop_all_queued(g, &stopped);
}

static void
give_up(struct group *g, const struct err *failure)
{
	struct err why = *failure;

	g->life.start_error = why;
	journal_fail(g, &why, "start");
	journal_event(g, "start-failed errno=%s", err_name(why.no));
	queue_drop_all(g, &why);
	end_ranks(g, why.text, WHY_STOPPED);
}

static int
all_ended(struct group *g, struct err *e)
{
	return rank_any_process(g) ? -EAGAIN : 0;
}

static void
rest(struct group *g, const struct err *why)
{
	loop_timer_del(g->life.stop_timer);
	g->life.stop_timer = NULL;
	for (int i = 0; i < g->size; i++)
		rank_set_state(&g->ranks[i], R_NONE);
	start_make_ranks(g);
}

static void
spawn_again(struct group *g, const struct err *why)
{
	struct err e = {0};

	rest(g, why);
	if (start_prepare(g, &e) == 0) {
		spawn_all(g, why);
		return;
	}
	journal_fail(g, &e, "start");
	queue_drop_all_queued(g, &e);
	enter(g, G_STOPPED);
}

/* clang-format off */
static const struct transition table[G_STATES][LIFE_EVENTS] = {
    [G_NEW] = {
	[LIFE_START]   = {start_prepare, G_STARTING, spawn_all, "a process is started for each rank, and the store"},
	[LIFE_RESTART] = {start_prepare, G_STARTING, spawn_all, "as start"},
    },
    [G_STARTING] = {
	[LIFE_STOP]    = {NULL, G_STOPPING, stop_ranks, "the processes are ended"},
	[LIFE_RESTART] = {NULL, G_RESTARTING, restart_ranks, "the processes are ended, then new ones started"},
	[LIFE_FAILED]  = {NULL, G_STOPPING, give_up, "what is queued fails with the reason"},
	[LIFE_STARTED] = {all_started, G_STARTING, join_all, "once all run, they join the process group"},
	[LIFE_JOINED]  = {all_joined, G_READY, begin_cells, "once all have joined, cells begin"},
    },
    [G_READY] = {
	[LIFE_STOP]    = {NULL, G_STOPPING, stop_ranks, "the processes are ended; what is queued is dropped"},
	[LIFE_RESTART] = {NULL, G_RESTARTING, restart_ranks, "the processes are ended, then new ones started"},
	[LIFE_FAILED]  = {NULL, G_STOPPING, give_up, "what is queued fails with the reason"},
	[LIFE_STARTED] = {NULL, G_READY, rejoin, "a rank that was replaced rejoins with the others"},
    },
    [G_STOPPING] = {
	[LIFE_START]   = {NULL, G_RESTARTING, NULL, "new processes are started once the last has ended"},
	[LIFE_RESTART] = {NULL, G_RESTARTING, drop_waiting, "new processes are started once the last has ended"},
	[LIFE_ENDED]   = {all_ended, G_STOPPED, rest, "once the last process has ended"},
    },
    [G_RESTARTING] = {
	[LIFE_STOP]    = {NULL, G_STOPPING, drop_waiting, "the start is called off; what is queued is dropped"},
	[LIFE_RESTART] = {NULL, G_RESTARTING, drop_waiting, "what is queued is dropped"},
	[LIFE_ENDED]   = {all_ended, G_STARTING, spawn_again, "once the last process has ended"},
    },
    [G_STOPPED] = {
	[LIFE_START]   = {start_prepare, G_STARTING, spawn_all, "a process is started for each rank, and the store"},
	[LIFE_RESTART] = {start_prepare, G_STARTING, spawn_all, "as start"},
    },
};

/* clang-format on */

void
lifecycle_print(struct buf *out)
{
	for (int s = 0; s < G_STATES; s++)
		for (int v = 0; v < LIFE_EVENTS; v++)
			step_print(out, state_names[s], event_names[v],
			    state_names[table[s][v].next], table[s][v].help);
}

static void
enter(struct group *g, enum group_state state)
{
	if (g->life.state == state)
		return;
	g->life.state = state;
	if (state == G_STARTING || state == G_STOPPED)
		g->history.names = NAMES_EMPTY;
	journal_event(g, "state %s", state_names[state]);
	journal_changed(g);
	lifecycle_settle(g);
}

int
lifecycle_take(struct group *g, enum life_event event, struct err *e)
{
	const struct transition *t = &table[g->life.state][event];
	int r;

	if (!t->help)
		return 0;
	r = t->guard ? t->guard(g, e) : 0;
	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	enter(g, t->next);
	if (t->action)
		t->action(g, e);
	return 0;
}

int
lifecycle_start(struct group *g, struct err *e)
{
	return lifecycle_take(g, LIFE_START, e);
}

int
lifecycle_stop(struct group *g, struct err *e)
{
	g->life.start_error = (struct err){0};
	return lifecycle_take(g, LIFE_STOP, e);
}

int
lifecycle_restart(struct group *g, struct err *e)
{
	g->life.start_error = (struct err){0};
	return lifecycle_take(g, LIFE_RESTART, e);
}

/* ---- idle ---- */

static void
on_idle(void *arg)
{
	struct group *g = arg;
	struct err e;

	g->life.idle_timer = NULL;
	if (g->life.state != G_READY || group_busy(g) || g->set.idle < 0)
		return;
	journal_event(g, "idle seconds=%g", g->set.idle);
	lifecycle_stop(g, &e);
}

void
event_rested(struct group *g)
{
	loop_timer_del(g->life.idle_timer);
	g->life.idle_timer = NULL;
	if (g->life.state == G_READY && g->set.idle >= 0 && !group_busy(g) && !g->gone)
		g->life.idle_timer =
		    loop_timer(daemon_.loop, (uint64_t)(g->set.idle * MS_PER_S), on_idle, g);
}

void
lifecycle_end(struct group *g)
{
	loop_timer_del(g->life.stop_timer);
	loop_timer_del(g->life.idle_timer);
	g->life.stop_timer = g->life.idle_timer = NULL;
	answer_all(&g->life.waiters, -ENODEV);
	answer_all(&g->life.start_waiters, -ENODEV);
}

void
lifecycle_hosts_changed(struct group *g)
{
	journal_changed(g);
	lifecycle_settle(g);
}

void
event_rebuilt(struct group *g)
{
	lifecycle_settle(g);
	queue_pump_all(g);
}
