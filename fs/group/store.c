/* The process that holds the rendezvous store. */
#include "group/store.h"
#include "group/events.h"
#include "group/facts.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/rank_request.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The store's process has ended, or could not be started. */
static void
store_gone(struct group *g, const struct err *e)
{
	bool listened = g->store.listening;

	g->store.slot = NO_SLOT;
	g->store.pid = 0;
	free(g->store.wrong);
	g->store.wrong = NULL;
	g->store.listening = false;
	event_store_died(g, listened, e);
}

static bool
store_reachable(const struct group *g)
{
	return g->store.host && agent_slot_lives(g->store.host->agent, g->store.slot);
}

void
store_addresses(struct group *g)
{
	struct buf addresses = {0};

	if (!store_reachable(g))
		return;
	facts_addresses(g, &addresses);
	agent_send(g->store.host->agent, Naddresses, 0, g->store.slot, 0, -1,
	    (struct slice){addresses.p, addresses.n});
	buf_free(&addresses);
}

static void
store_notice(void *arg, struct msg *m)
{
	struct group *g = arg;
	struct err e = {0};
	uint32_t pid, port;
	struct slice phases, wrong;

	if (wire_unpack(m, Nstarted, NULL, &pid, &port, &phases, &wrong) == 0) {
		if (wrong.n) { /* its Nexit follows */
			free(g->store.wrong);
			g->store.wrong = slice_dup(wrong);
			return;
		}
		g->store.port = port;
		g->store.listening = true;
		store_addresses(g);
		event_store_started(g);
	} else if (m->type == Nstranger) {
		journal_stranger(g, "store", m);
	} else if (m->type == Nexit) {
		fail(&e, EHOSTDOWN, "the process that holds the rendezvous store has ended%s%s",
		    g->store.wrong ? ": " : "", g->store.wrong ? g->store.wrong : "");
		agent_slot_free(g->store.host->agent, g->store.slot, &e);
		store_gone(g, &e);
	}
}

static void
store_ended(void *arg, const struct err *why)
{
	store_gone(arg, why);
}

static const struct slot_ops store_slot = {store_notice, NULL, store_ended};

static void
on_store_spawned(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct group *g = arg;
	struct slice how;
	uint32_t pid;

	if (!m && g->store.slot != NO_SLOT && !hosts_agent_gone(g->store.host)) {
		struct err why = *e;

		host_blame(g->store.host, &why);
		agent_slot_free(g->store.host->agent, g->store.slot, &why);
		store_gone(g, &why);
	} else if (m && wire_unpack(m, Rspawn, NULL, &pid, &how) == 0) {
		g->store.pid = (pid_t)pid;
	}
}

void
store_fini(struct group *g)
{
	static const struct err gone = {ENODEV, "the group is gone"};
	int slot = g->store.slot;

	/* first, so that calls that fail now are not reported */
	g->store.slot = NO_SLOT;
	free(g->store.wrong);
	g->store.wrong = NULL;
	if (g->store.host)
		agent_slot_free(g->store.host->agent, slot, &gone);
}

bool
store_wanted(const struct group *g)
{
	return strcmp(g->set.backend, "none") != 0;
}

void
store_spawn(struct group *g)
{
	struct host *h = g->ranks[0].host;
	struct buf env = {0}, master = {0};

	/* a replacement on the same host keeps the port, where the ranks look for it */
	if (g->store.host != h)
		g->store.port = 0;
	if (g->store.port)
		buf_addf(&env, "DDIP_STORE_PORT=%u%c", g->store.port, 0);
	host_env_master(g, &master);
	if (hosts_private(g))
		buf_addf(&env, "DDIP_STORE=store%c", 0);
	else
		buf_addf(&env, "DDIP_STORE_ADDR=%s%c", strchr(master.p, ':') ? "::" : "0.0.0.0", 0);
	buf_free(&master);
	g->store.moved = g->life.state == G_READY && (g->store.moved || g->store.host != h);
	g->store.host = h;
	g->store.listening = false;
	g->store.slot = agent_slot(h->agent, &store_slot, g);
	rank_spawn_process(g, h,
	    &(struct spawn){
		ENGINE_STORE, g->store.slot, "store", {env.p, env.n}, on_store_spawned, g});
	buf_free(&env);
}

void
store_quit(struct group *g)
{
	if (store_reachable(g))
		agent_send(g->store.host->agent, Nquit, 0, g->store.slot, 0, -1);
}

void
store_kill(struct group *g)
{
	if (store_reachable(g))
		agent_send(g->store.host->agent, Nsignal, 0, g->store.slot, 0, -1,
		    (uint32_t)SIGKILL, (uint32_t)1);
}
