/* The process that holds the rendezvous store. */
#include "group/store.h"
#include "group/hooks.h"
#include "group/rank_request.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

/* The store's process has ended, or never came. */
static void
store_gone(struct group *g, const struct err *e)
{
	bool listened = g->store.listening;

	g->store.slot = NO_SLOT;
	g->store.pid = 0;
	g->store.listening = false;
	group_tell(store_died, g, listened, e);
}

static void
store_notice(void *arg, struct msg *m)
{
	struct group *g = arg;
	struct err e = {0};
	uint32_t pid, port;
	struct slice phases;

	if (m->type == Nstarted && wire_unpack(m, NULL, &pid, &port, &phases) == 0) {
		g->store.port = port;
		g->store.listening = true;
		group_tell(store_started, g);
	} else if (m->type == Nexit) {
		fail(&e, EHOSTDOWN, "the process that holds the rendezvous store has ended");
		agent_slot_free(g->agent, g->store.slot, &e);
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

	if (!m && g->agent->conn && g->store.slot != NO_SLOT) {
		agent_slot_free(g->agent, g->store.slot, e);
		store_gone(g, e);
	} else if (m && wire_unpack(m, NULL, &pid, &how) == 0) {
		g->store.pid = (pid_t)pid;
	}
}

bool
store_wanted(const struct group *g)
{
	return strcmp(g->set.backend, "none") != 0;
}

void
store_spawn(struct group *g)
{
	g->store.listening = false;
	g->store.slot = agent_slot(g->agent, &store_slot, g);
	rank_spawn_process(g, ENGINE_STORE, g->store.slot, "store", on_store_spawned, g);
}

static bool
store_reachable(const struct group *g)
{
	return g->store.slot != NO_SLOT && g->agent && g->agent->conn;
}

void
store_quit(struct group *g)
{
	if (store_reachable(g))
		agent_send(g->agent, Nquit, 0, g->store.slot, 0, -1);
}

void
store_kill(struct group *g)
{
	if (store_reachable(g))
		agent_send(
		    g->agent, Nsignal, 0, g->store.slot, 0, -1, (uint32_t)SIGKILL, (uint32_t)1);
}
