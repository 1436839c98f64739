/*
 * Decides what to do when the processes of a group start, join, fail and die: which rank to
 * replace, and when to give up.
 */
#include "group/processes.h"
#include "base/daemon.h"
#include "group/events.h"
#include "group/external.h"
#include "group/facts.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/recovery.h"
#include "group/store.h"
#include "host/agent.h"
#include <errno.h>
#include <string.h>

void
event_store_started(struct group *g)
{
	struct err e;

	lifecycle_take(g, LIFE_STARTED, &e);
}

/* The Python of a replaced rank does not fit those of the others: its host is lost to this group.
 */
static void
reject(struct rank *k, const struct err *e)
{
	struct err why = *e;

	if (!hosts_named(k->g)) {
		lifecycle_take(k->g, LIFE_FAILED, &why);
		return;
	}
	journal_fail_rank(k->g, k->number, e, "hosts");
	hosts_lose(k->host);
	journal_event(
	    k->g, "host %s lost %.*s", k->host->name, (int)strcspn(e->text, "\n"), e->text);
	recovery_kill(k, "rank-killed");
}

void
event_rank_started(struct rank *k)
{
	struct group *g = k->g;
	struct err e = {0};

	journal_event(g, "rank %d pid=%d how=%s", k->number, (int)k->pid, k->spawn_method);
	if (g->life.state == G_READY && facts_check(g, &e) < 0)
		reject(k, &e);
	else
		lifecycle_take(g, LIFE_STARTED, &e);
}

void
event_rank_ready(struct rank *k)
{
	struct err e;

	if (k->g->life.state == G_READY)
		recovery_rejoined(k);
	else
		lifecycle_take(k->g, LIFE_JOINED, &e);
}

void
event_rank_join_failed(struct rank *k, const struct err *e)
{
	struct err why = *e;

	if (k->g->life.state == G_READY) {
		journal_fail_rank(k->g, k->number, e, "recover");
		recovery_kill(k, "rank-killed"); /* which starts another one */
	} else {
		lifecycle_take(k->g, LIFE_FAILED, &why);
	}
}

void
event_rank_lost(struct rank *k, const struct err *why)
{
	/* before the next cell can begin on any rank */
	if (k->g->life.state == G_READY)
		recovery_request(k->g, "rank-died");
	queue_lost(k, why);
}

/* ---- hosts that are lost ---- */

static void
spawn_missing(struct group *g)
{
	if (store_wanted(g) && g->store.slot == NO_SLOT)
		store_spawn(g);
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].slot == NO_SLOT && !external_is(&g->ranks[i])) {
			journal_event(
			    g, "rank %d placed host=%s", i, host_label(host_of_rank(&g->ranks[i])));
			rank_spawn(&g->ranks[i]);
		}
}

/* Some ranks have no place: nothing runs until they have one. */
static void
lack(struct group *g, const struct err *why)
{
	struct buf lacking = {0};
	struct err e = {0};

	hosts_lacking(g, &lacking);
	fail(&e, EHOSTDOWN,
	    "%s; without a place: %s. Name other hosts (echo hosts a:2 c:2 > %s/ctl), or write "
	    "recover to try the same ones again",
	    why->text, lacking.p, g->name);
	buf_free(&lacking);
	if (!g->hosts.lacking)
		journal_event(g, "hosts-lacking");
	hosts_lack(g, true);
	journal_fail(g, &e, "hosts");
	queue_drop_all_queued(g, &e);
	lifecycle_hosts_changed(g);
}

void
processes_place(struct group *g)
{
	struct err e = {0};

	if (g->life.state != G_READY)
		return;
	if (hosts_replace(g, &e) < 0) {
		lack(g, &e);
		return;
	}
	hosts_lack(g, false);
	spawn_missing(g);
	journal_changed(g);
}

/* Everything that ran on the lost hosts is now accounted for. */
static void
on_hosts_lost(void *arg)
{
	struct group *g = arg;
	struct err e = {0};

	g->hosts.timer = NULL;
	if (g->life.state != G_READY)
		return;
	if (hosts_any_alive(g)) {
		processes_place(g);
		return;
	}
	fail(&e, EHOSTDOWN, "no host is left that has ranks: their variables are lost");
	lifecycle_take(g, LIFE_FAILED, &e);
}

/* Has the host's ranks placed again once everything that has ended is accounted for. */
static void
lose(struct group *g, struct host *h, const char *why)
{
	if (!h->lost) {
		hosts_lose(h);
		journal_event(g, "host %s lost %s", h->name, why);
	}
	if (!g->hosts.timer)
		g->hosts.timer = loop_timer(daemon_.loop, 0, on_hosts_lost, g);
}

/* Marks the host as lost if its agent has ended. Returns false if it is not lost, or if the group
 * names no hosts. */
static bool
lost_host(struct group *g, struct host *h, const char *why)
{
	if (!h || !hosts_named(g) || (!h->lost && !hosts_agent_gone(h)))
		return false;
	lose(g, h, why);
	return true;
}

/* ---- processes ---- */

/* The rank's process, or its agent, has ended. What it ran has failed already. */
void
event_rank_died(struct rank *k, const char *how)
{
	struct group *g = k->g;
	bool early = k->died_as != R_READY, lost;
	struct err e = {0};

	rank_set_dead(k, how);
	if (g->life.state == G_STOPPING || g->life.state == G_RESTARTING) {
		lifecycle_take(g, LIFE_ENDED, &e);
		return;
	}
	journal_event(g, "rank %d exit %s", k->number, how);
	fail(&e, EHOSTDOWN, "rank %d died: %.200s%s%s", k->number, how,
	    k->end.stderr_tail && *k->end.stderr_tail ? "\n" : "",
	    k->end.stderr_tail ? k->end.stderr_tail : "");
	lost = lost_host(g, k->host, how);
	if (g->life.state == G_STARTING || (!lost && hosts_agent_gone(k->host)) ||
	    (!lost && early && !recovery_tolerates(g))) {
		lifecycle_take(g, LIFE_FAILED, &e);
		return;
	}
	journal_fail(g, &e, "rank");
	recovery_rank_died(k);
	if (!lost)
		rank_spawn(k);
	recovery_rejoined(k); /* it may be the last one that the rebuild waited for */
}

void
event_rank_spawn_failed(struct rank *k, const struct err *e)
{
	struct group *g = k->g;
	struct err why = *e;

	if (g->life.state == G_READY && hosts_named(g) && hosts_any_alive(g)) {
		/* a host that cannot start a rank is lost to this group; ranks elsewhere live on */
		journal_fail(g, e, "rank");
		lose(g, k->host, e->text);
		return;
	}
	lifecycle_take(g, LIFE_FAILED, &why);
	lifecycle_take(g, LIFE_ENDED, &why);
}

void
event_store_died(struct group *g, bool had_started, const struct err *e)
{
	struct err why = *e;
	bool lost = g->life.state == G_READY && lost_host(g, g->store.host, e->text);

	if (g->life.state == G_READY && (lost || (!hosts_agent_gone(g->store.host) &&
						     (had_started || recovery_tolerates(g))))) {
		/* its keys are gone: all ranks rejoin at the new store, which listens on the same
		 * port if its host is alive */
		journal_fail(g, e, "store");
		if (!lost)
			store_spawn(g);
		recovery_store_died(g);
		return;
	}
	lifecycle_take(g, LIFE_FAILED, &why);
	lifecycle_take(g, LIFE_ENDED, &why);
}
