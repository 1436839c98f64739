/* A group's life: what start, stop and restart mean in each state, and what the engines' messages
 * make of it. */
#include "group/group.h"
#include "group/cell.h"
#include "base/daemon.h"
#include "group/external.h"
#include "host/gpustat.h"
#include "host/agent.h"
#include "host/ticks.h"
#include "group/queue.h"
#include "group/recovery.h"
#include "group/rank.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POLITE_MS = 2000 };

static const char *const state_names[G_STATES] = {
    [G_NEW] = "new",
    [G_STARTING] = "starting",
    [G_READY] = "idle",
    [G_STOPPING] = "stopping",
    [G_STOPPED] = "stopped",
};

bool
group_busy(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->life.state == G_READY && !TAILQ_EMPTY(&g->ranks[i].queue))
			return true;
	return false;
}

const char *
group_state_name(const struct group *g)
{
	if (g->life.state == G_READY && (recovery_runs(g) || g->recovery.needed))
		return "recovering";
	return group_busy(g) ? "busy" : state_names[g->life.state];
}

struct rank *
group_rank(struct group *g, int k)
{
	return k >= 0 && k < g->size ? &g->ranks[k] : NULL;
}

bool
group_settled(const struct group *g)
{
	if (g->life.state == G_STARTING || g->life.state == G_STOPPING)
		return false;
	if (g->life.state == G_READY && !external_others_are(g, R_READY))
		return false;
	return !(g->life.state == G_READY && (g->recovery.needed || recovery_runs(g)));
}

static int
settled_errno(const struct group *g)
{
	return g->life.want_start && g->life.state != G_READY ? MAX(g->life.start_error.no, 1) : 0;
}

void
group_settle(struct group *g)
{
	struct req *r;

	if (!group_settled(g))
		return;
	while ((r = TAILQ_FIRST(&g->life.waiters))) {
		TAILQ_REMOVE(&g->life.waiters, r, link);
		req_done(r, -settled_errno(g));
	}
}

static void
set_state(struct group *g, enum group_state state)
{
	if (g->life.state == state)
		return;
	g->life.state = state;
	group_event(g, "state %s", state_names[state]);
	group_changed(g);
	group_settle(g);
}

static void
wait_interrupted(struct req *r, enum interrupt how)
{
	struct group *g = r->waits_for;

	TAILQ_REMOVE(&g->life.waiters, r, link);
	req_done(r, how == LET_GO ? 0 : -EINTR);
}

int
group_wait(struct group *g, struct req *r, struct work *w)
{
	if (w)
		return work_wait(w, r);
	if (group_settled(g))
		return -settled_errno(g);
	r->waits_for = g;
	TAILQ_INSERT_TAIL(&g->life.waiters, r, link);
	return req_park(r, wait_interrupted);
}

int
group_accepts(const struct group *g, struct err *e)
{
	if (g->gone)
		return fail(e, ENODEV, "the group %s is gone", g->name);
	if (g->life.state == G_STOPPED || (g->life.state == G_STOPPING && !g->life.resume))
		return fail(e, ESRCH, "no engine runs: the group is %s (echo start > %s/ctl)",
		    state_names[g->life.state], g->name);
	return external_leaves_some(g, e);
}

static bool
processes_left(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].slot != NO_SLOT)
			return true;
	return g->store.slot != NO_SLOT;
}

/* Room for as many as there may be: they stay where they are. Only pages of those that there are
 * take memory, and it goes back to the system. */
static struct rank *
new_ranks(void)
{
	void *p = mmap(NULL, MAX_RANKS * sizeof(struct rank), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for ranks");
	return p;
}

/* The ranks as the settings want them; those of before are kept if their number is right. */
void
group_make_ranks(struct group *g)
{
	struct gpus gpus;
	struct err e;
	int size = (int)g->set.size;

	/* what was set was good; if there is nothing to choose from, 2 */
	if (!size)
		size = gpustat_choose(g->set.gpus, &gpus, &e) < 0 ? 2 : gpus_default_size(&gpus);
	if ((g->ranks && g->size == size) || processes_left(g))
		return; /* the end of the last process comes back here */
	for (int i = 0; i < g->size; i++)
		rank_fini(&g->ranks[i]);
	if (!g->ranks)
		g->ranks = new_ranks();
	g->size = size;
	for (int i = 0; i < size; i++)
		rank_init(&g->ranks[i], g, i);
}

bool
group_wants_store(const struct group *g)
{
	return strcmp(g->set.backend, "none") != 0;
}

static int
check_run_dir(const struct group *g, struct err *e)
{
	if (access(g->run_dir, W_OK) == 0)
		return 0;
	return fail(e, errno, "%s is gone, where output is kept: rmdir the group and make it again",
	    g->run_dir);
}

static int
begin_start(struct group *g, struct err *e)
{
	struct agent *a;
	struct gpus gpus;

	if (check_run_dir(g, e) < 0 || gpustat_choose(g->set.gpus, &gpus, e) < 0 ||
	    gpus_check_size(&gpus, g->set.size, g->set.gpus, e) < 0 || !(a = agent_local(e))) {
		g->life.start_error = *e;
		return -e->no;
	}
	group_make_ranks(g);
	if (external_begin(g, e) < 0) {
		g->life.start_error = *e;
		return -e->no;
	}
	g->agent = a;
	g->agent_serial = a->serial;
	g->zygote = agent_zygote(a, &g->set);
	g->recovery.generation++;
	g->recovery.needed = g->recovery.failed = false;
	g->recovery.consecutive_failures = 0;
	g->life.phase_count = 0;
	g->life.start_error = (struct err){0};
	g->life.started = now_ns();
	g->life.want_start = true;
	g->life.resume = false;
	set_state(g, G_STARTING);
	g->store.slot = NO_SLOT;
	g->store.port = 0;
	if (group_wants_store(g))
		rank_spawn_store(g);
	for (int i = 0; i < g->size; i++)
		if (!external_is(&g->ranks[i]))
			rank_spawn(&g->ranks[i]);
	return 0;
}

int
group_start(struct group *g, struct err *e)
{
	g->life.want_start = true;
	if (g->life.state == G_STOPPING)
		g->life.resume = true;
	if (g->life.state == G_NEW || g->life.state == G_STOPPED)
		return begin_start(g, e);
	return 0;
}

static void
drop_queued(struct group *g, const struct err *e)
{
	for (int i = 0; i < g->size; i++)
		queue_drop_queued(&g->ranks[i], e);
}

static void
stopped_if_so(struct group *g)
{
	struct err e = {0};

	if (g->life.state != G_STOPPING || processes_left(g))
		return;
	loop_timer_del(g->life.stop_timer);
	g->life.stop_timer = NULL;
	for (int i = 0; i < g->size; i++)
		rank_set_state(&g->ranks[i], R_NONE);
	if (!g->life.resume) {
		group_make_ranks(g);
		set_state(g, G_STOPPED);
		return;
	}
	if (begin_start(g, &e) < 0) {
		group_fail(g, &e, "start");
		drop_queued(g, &e);
		set_state(g, G_STOPPED);
	}
}

static void
kill_all(void *arg)
{
	struct group *g = arg;

	g->life.stop_timer = NULL;
	for (int i = 0; i < g->size; i++)
		rank_kill(&g->ranks[i]);
	if (g->store.slot != NO_SLOT && g->agent->conn)
		agent_send(g->agent, Nsignal, 0, g->store.slot, 0, -1, 9u, 1u);
}

/* Ends all engines, politely first. What was queued is dropped. */
static void
begin_stop(struct group *g, const char *why)
{
	struct err e = {0};

	recovery_call_off(g);
	fail(&e, ECANCELED, "%s", why);
	set_state(g, G_STOPPING);
	drop_queued(g, &e);
	for (int i = 0; i < g->size; i++) {
		struct rank *k = &g->ranks[i];

		if (queue_running(k)) {
			rank_interrupt(k, 0);
			rank_abort(k, true);
		}
		rank_quit(k);
	}
	if (g->store.slot != NO_SLOT && g->agent->conn)
		agent_send(g->agent, Nquit, 0, g->store.slot, 0, -1);
	if (!g->life.stop_timer)
		g->life.stop_timer = loop_timer(daemon_.loop, POLITE_MS, kill_all, g);
	stopped_if_so(g);
}

int
group_stop(struct group *g, struct err *e)
{
	static const struct err dropped = {ECANCELED, "the group was stopped"};

	g->life.want_start = g->life.resume = false;
	if (g->life.state == G_STARTING || g->life.state == G_READY)
		begin_stop(g, dropped.text);
	else if (g->life.state == G_STOPPING)
		drop_queued(g, &dropped); /* it waited for the start that is called off */
	return 0;
}

int
group_restart(struct group *g, struct err *e)
{
	static const struct err dropped = {ECANCELED, "the group was restarted"};

	g->life.want_start = true;
	if (g->life.state == G_NEW || g->life.state == G_STOPPED)
		return begin_start(g, e);
	g->life.resume = true;
	if (g->life.state != G_STOPPING)
		begin_stop(g, dropped.text);
	else
		drop_queued(g, &dropped);
	return 0;
}

void
group_start_failed(struct group *g, const struct err *e)
{
	struct err lost = *e;

	if (g->life.state != G_STARTING && g->life.state != G_READY)
		return;
	g->life.start_error = *e;
	group_fail(g, e, "start");
	group_event(g, "start-failed errno=%s", err_name(e->no));
	g->life.resume = false;
	for (int i = 0; i < g->size; i++)
		queue_drop(&g->ranks[i], &lost);
	begin_stop(g, lost.text);
}

static void
idle_is_up(void *arg)
{
	struct group *g = arg;
	struct err e;

	g->life.idle_timer = NULL;
	if (g->life.state != G_READY || group_busy(g) || g->set.idle < 0)
		return;
	group_event(g, "idle seconds=%g", g->set.idle);
	group_stop(g, &e);
}

void
group_idle(struct group *g)
{
	loop_timer_del(g->life.idle_timer);
	g->life.idle_timer = NULL;
	if (g->life.state == G_READY && g->set.idle >= 0 && !group_busy(g) && !g->gone)
		g->life.idle_timer =
		    loop_timer(daemon_.loop, (uint64_t)(g->set.idle * 1000), idle_is_up, g);
}

/* All are born and the store listens: they meet. */
static void
join_if_born(struct group *g)
{
	if (g->life.state != G_STARTING || (group_wants_store(g) && !g->store.listening))
		return;
	if (!external_others_are(g, R_BORN))
		return;
	group_phase(g, "spawn_ms", (double)(now_ns() - g->life.started) / 1e6);
	for (int i = 0; i < g->size; i++)
		if (!external_is(&g->ranks[i]))
			rank_join(&g->ranks[i]);
}

void
group_store_born(struct group *g, uint32_t port)
{
	g->store.port = port;
	g->store.listening = true;
	if (g->life.state == G_READY)
		recovery_begin(g);
	else
		join_if_born(g);
}

void
group_rank_born(struct rank *k)
{
	struct group *g = k->g;

	group_event(g, "rank %d pid=%d how=%s", k->number, (int)k->pid, k->how);
	if (g->life.state == G_READY)
		recovery_begin(g);
	else
		join_if_born(g);
}

void
group_rank_ready(struct rank *k)
{
	struct group *g = k->g;

	if (g->life.state == G_READY) {
		recovery_came_back(k);
		return;
	}
	if (g->life.state != G_STARTING || !external_others_are(g, R_READY))
		return;
	g->life.ready = now_ns();
	group_phase(g, "start_ms", (double)(g->life.ready - g->life.started) / 1e6);
	set_state(g, G_READY);
	queue_pump_all(g);
	recovery_begin(g); /* `recover` was asked for meanwhile */
	group_idle(g);
}

void
group_kill_rank(struct rank *k)
{
	rank_kill(k);
}

/* The agent that started the ranks, whoever serves now. */
static bool
agent_gone(const struct group *g)
{
	return !g->agent->conn || g->agent->serial != g->agent_serial;
}

/* Its process has ended, or its agent has. What it ran has failed already. */
void
group_rank_died(struct rank *k, const char *how)
{
	struct group *g = k->g;
	bool early = k->died_as != R_READY;
	struct err e = {0};

	k->pid = 0;
	k->cell = 0;
	k->waits_input = false;
	free(k->last);
	k->last = xstrdup(how);
	rank_set_state(k, R_DEAD);
	if (g->life.state == G_STOPPING) {
		stopped_if_so(g);
		return;
	}
	group_event(g, "rank %d exit %s", k->number, how);
	fail(&e, EHOSTDOWN, "rank %d died: %.200s%s%s", k->number, how,
	    k->stderr_tail && *k->stderr_tail ? "\n" : "", k->stderr_tail ? k->stderr_tail : "");
	if (g->life.state == G_STARTING || agent_gone(g) ||
	    (early && ++g->recovery.consecutive_failures > LOSSES_MAX)) {
		group_start_failed(g, &e);
		return;
	}
	group_fail(g, &e, "rank");
	recovery_lost(k);
	rank_spawn(k);
	recovery_came_back(k); /* it may be the last that the others waited for */
}

void
group_rank_unborn(struct rank *k, const struct err *e)
{
	group_start_failed(k->g, e);
	stopped_if_so(k->g);
}

void
group_store_died(struct group *g, const struct err *e)
{
	bool born = g->store.listening;

	g->store.slot = NO_SLOT;
	g->store.pid = 0;
	g->store.listening = false;
	if (g->life.state == G_READY && !agent_gone(g) &&
	    (born || ++g->recovery.consecutive_failures <= LOSSES_MAX)) {
		/* its keys are gone: all meet again at the new one, which listens at the same port
		 */
		group_fail(g, e, "store");
		rank_spawn_store(g);
		recovery_store_lost(g);
		return;
	}
	if (g->life.state == G_STARTING || g->life.state == G_READY)
		group_start_failed(g, e);
	stopped_if_so(g);
}

void
group_phase(struct group *g, const char *name, double ms)
{
	struct phase *p;

	if (g->life.phase_count == ARRAY_LEN(g->life.phases))
		return;
	p = &g->life.phases[g->life.phase_count++];
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->ms = ms;
}
