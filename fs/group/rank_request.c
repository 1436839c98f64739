/* Asks a rank's process to do something. The verbs of rankK/ctl are in tree/ctl.c. */
#include "group/rank_request.h"
#include "group/external.h"
#include "group/hooks.h"
#include "group/rank.h"
#include "host/gpustat.h"
#include "host/zygotes.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool
reachable(struct rank *k)
{
	return k->slot != NO_SLOT && k->g->agent && k->g->agent->conn;
}

uint32_t
rank_zygote(struct group *g)
{
	struct zygote_spec spec = {g->set.python, g->set.cwd, g->set.preload, g->set.env};

	return zygotes_want(g->agent, g->zygote, &spec);
}

static void
on_spawned(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct slice how;
	uint32_t pid;

	if (!m) {
		int slot = k->slot;

		if (slot == NO_SLOT)
			return; /* with its agent: that is told elsewhere */
		rank_gone(k, e);
		agent_slot_free(k->g->agent, slot, e);
		rank_set_state(k, R_DEAD);
		group_tell(rank_spawn_failed, k, e);
		return;
	}
	if (wire_unpack(m, NULL, &pid, &how) < 0)
		return;
	k->pid = (pid_t)pid;
	snprintf(k->spawn_method, sizeof(k->spawn_method), "%.*s", (int)how.n, how.p);
}

void
rank_spawn_process(struct group *g, int kind, int slot, const char *name, reply_fn *fn, void *arg)
{
	struct buf env = {0};

	buf_addf(&env, "DDIP_GROUP=%s%cDDIP_DAEMON_PID=%d%c", g->name, 0, (int)getpid(), 0);
	if (kind == ENGINE_STORE)
		buf_addf(&env, "DDIP_STORE=%s/store%c", g->run_dir, 0);
	if (kind == ENGINE_STORE && g->store.port)
		buf_addf(&env, "DDIP_STORE_PORT=%u%c", g->store.port, 0);
	if (kind == ENGINE_RANK)
		gpustat_env(g->set.gpus, ((struct rank *)arg)->number, &env);
	agent_send(g->agent, Tspawn, 0, slot, agent_tag(g->agent, slot, fn, arg), -1,
	    (uint32_t)kind, g->zygote, slice_text(g->run_dir), slice_text(name),
	    ((struct slice){env.p, env.n}), (uint32_t)0);
	buf_free(&env);
}

void
rank_spawn(struct rank *k)
{
	struct group *g = k->g;
	char name[32];

	snprintf(name, sizeof(name), "rank%d", k->number);
	free(k->last_exit);
	free(k->stderr_tail);
	k->last_exit = k->stderr_tail = NULL;
	k->pid = 0;
	k->cell = 0;
	k->waits_input = k->kill_sent = false;
	k->unread = 0;
	k->slot = agent_slot(g->agent, &rank_slot, k);
	rank_set_state(k, R_SPAWNING);
	rank_spawn_process(g, ENGINE_RANK, k->slot, name, on_spawned, k);
}

static void
on_joined(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct slice phases, table;
	struct err why;

	if (!m) {
		if (k->state != R_INIT)
			return; /* its death is told elsewhere */
		why = *e;
		snprintf(why.text, sizeof(why.text), "rank %d could not join: %.800s", k->number,
		    e->text);
		group_tell(rank_join_failed, k, &why);
		return;
	}
	if (wire_unpack(m, NULL, &phases, &table) < 0)
		return;
	rank_set_table(k, table);
	rank_set_state(k, R_READY);
	group_tell(rank_ready, k);
}

void
rank_env(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;
	int local = gpustat_local_rank(g->set.gpus, k->number),
	    local_size = gpustat_local_size(g->set.gpus, g->size);

	buf_addf(env, "RANK=%d%cLOCAL_RANK=%d%c", k->number, 0, local, 0);
	buf_addf(env, "WORLD_SIZE=%d%cLOCAL_WORLD_SIZE=%d%c", g->size, 0, local_size, 0);
	buf_addf(env, "GROUP_RANK=%d%cGROUP_WORLD_SIZE=%d%cROLE_NAME=default%c",
	    k->number / local_size, 0, (g->size + local_size - 1) / local_size, 0, 0);
	buf_addf(env, "ROLE_RANK=%d%cROLE_WORLD_SIZE=%d%c", k->number, 0, g->size, 0);
	buf_addf(env, "MASTER_ADDR=127.0.0.1%cMASTER_PORT=%u%c", 0, g->store.port, 0);
	buf_addf(env, "TORCHELASTIC_RESTART_COUNT=0%cTORCHELASTIC_MAX_RESTARTS=0%c", 0, 0);
	buf_addf(
	    env, "TORCHELASTIC_RUN_ID=ddip-%s-%llu%c", g->name, (unsigned long long)g->serial, 0);
	buf_addf(env, "TORCHELASTIC_USE_AGENT_STORE=True%c", 0);
}

void
rank_set_autogc(struct rank *k)
{
	if (reachable(k))
		agent_send(k->g->agent, Nautogc, 0, k->slot, 0, -1, (uint32_t)k->g->set.autogc);
}

void
rank_join(struct rank *k)
{
	struct group *g = k->g;
	struct buf env = {0}, external = {0};

	rank_env(k, &env);
	buf_addf(&env, "TORCHELASTIC_ERROR_FILE=%s/rank%d.error.json%c", g->run_dir, k->number, 0);
	external_list(&g->set, &external);
	if (external.n)
		buf_addf(&env, "DDIP_EXTERNAL=%s%c", external.p, 0);
	if (g->store.slot != NO_SLOT)
		buf_addf(&env, "DDIP_STORE=%s/store%c", g->run_dir, 0);
	if (*g->set.env)
		buf_addf(&env, "DDIP_SETTINGS=%s%c", g->set.env, 0);
	rank_set_state(k, R_INIT);
	agent_send(g->agent, Tinit, 0, k->slot, agent_tag(g->agent, k->slot, on_joined, k), -1,
	    (uint32_t)k->number, (uint32_t)g->size,
	    (uint32_t)gpustat_local_rank(g->set.gpus, k->number), g->recovery.generation,
	    slice_text(g->set.backend), ((struct slice){env.p, env.n}));
	buf_free(&env);
	buf_free(&external);
	if (!g->set.autogc)
		rank_set_autogc(k);
}

void
rank_quit(struct rank *k)
{
	if (reachable(k))
		agent_send(k->g->agent, Nquit, 0, k->slot, 0, -1);
}

void
rank_kill(struct rank *k)
{
	if (!reachable(k))
		return;
	k->kill_sent = true;
	agent_send(k->g->agent, Nsignal, 0, k->slot, 0, -1, (uint32_t)SIGKILL, (uint32_t)1);
}

void
rank_signal(struct rank *k, int signo)
{
	if (reachable(k))
		agent_send(k->g->agent, Nsignal, 0, k->slot, 0, -1, (uint32_t)signo, (uint32_t)0);
}

void
rank_interrupt(struct rank *k, uint32_t number)
{
	if (reachable(k))
		agent_send(k->g->agent, Nintr, 0, k->slot, 0, -1, number);
}

void
rank_abort(struct rank *k, bool always)
{
	if (reachable(k))
		agent_send(k->g->agent, Nabort, 0, k->slot, 0, -1, (uint32_t)always, (uint32_t)0);
}

void
rank_abort_stuck(struct rank *k, double seconds)
{
	if (reachable(k))
		agent_send(k->g->agent, Nabort, 0, k->slot, 0, -1, (uint32_t)0,
		    (uint32_t)(seconds * 1000));
}
