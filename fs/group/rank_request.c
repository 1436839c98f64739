/* Sends requests to a rank's process. The verbs of rankK/ctl are in tree/ctl.c. */
#include "group/rank_request.h"
#include "group/events.h"
#include "group/external.h"
#include "group/facts.h"
#include "group/host.h"
#include "group/output.h"
#include "group/rank.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
reachable(struct rank *k)
{
	return agent_slot_lives(rank_agent(k), k->slot);
}

static void
on_spawned(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct slice how;
	uint32_t pid;

	if (!m) {
		int slot = k->slot;
		struct err why = *e;

		if (slot == NO_SLOT)
			return; /* it ended with its agent, which is reported elsewhere */
		host_blame(k->host, &why);
		rank_gone(k, &why);
		agent_slot_free(rank_agent(k), slot, &why);
		k->died_as = R_NONE;
		rank_set_state(k, R_DEAD);
		event_rank_spawn_failed(k, &why);
		return;
	}
	if (wire_unpack(m, Rspawn, NULL, &pid, &how) < 0)
		return;
	k->pid = (pid_t)pid;
	snprintf(k->spawn_method, sizeof(k->spawn_method), "%.*s", (int)how.n, how.p);
}

void
rank_spawn_process(struct group *g, struct host *h, const struct spawn *p)
{
	struct buf env = {0};

	buf_addf(&env, "DDIP_GROUP=%s%c", g->name, 0);
	buf_add(&env, p->env.p, p->env.n);
	agent_send(h->agent, Tspawn, 0, p->slot,
	    agent_tag(h->agent, p->slot, Tspawn, p->fn, p->arg), -1, (uint32_t)p->kind, h->zygote,
	    slice_text(strrchr(g->run_dir, '/') + 1), slice_text(p->name),
	    ((struct slice){env.p, env.n}), (uint32_t)0);
	buf_free(&env);
}

void
rank_spawn(struct rank *k)
{
	struct agent *a = rank_agent(k);
	struct buf env = {0};
	struct err e;
	char name[32];

	snprintf(name, sizeof(name), "rank%d", k->number);
	host_env_gpus(k, &env);
	free(k->end.stderr_tail);
	free(k->end.wrong);
	k->end.stderr_tail = k->end.wrong = NULL;
	k->pid = 0;
	k->cell = 0;
	k->input.waits = k->kill_sent = false;
	k->input.unread = 0;
	k->slot = agent_slot(a, &rank_slot, k);
	rank_set_state(k, R_SPAWNING);
	if (output_begin(k, &e) < 0)
		conn_refuse(
		    a->conn, (unsigned)k->slot, agent_tag(a, k->slot, Tspawn, on_spawned, k), &e);
	else
		rank_spawn_process(k->g, k->host,
		    &(struct spawn){ENGINE_RANK, k->slot, name, {env.p, env.n}, on_spawned, k});
	buf_free(&env);
}

static void
on_joined(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct slice phases, table;
	struct err why;

	if (!m) {
		if (k->state != R_INIT)
			return; /* its death is reported elsewhere */
		why = *e;
		snprintf(why.text, sizeof(why.text), "rank %d could not join: %.800s", k->number,
		    e->text);
		event_rank_join_failed(k, &why);
		return;
	}
	if (wire_unpack(m, Rinit, NULL, &phases, &table) < 0)
		return;
	rank_set_table(k, table);
	rank_set_state(k, R_READY);
	event_rank_ready(k);
}

void
rank_env(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;

	buf_addf(env, "RANK=%d%cWORLD_SIZE=%d%cROLE_NAME=default%c", k->number, 0, g->size, 0, 0);
	buf_addf(env, "ROLE_RANK=%d%cROLE_WORLD_SIZE=%d%c", k->number, 0, g->size, 0);
	host_env_place(k, env);
	buf_addf(env, "TORCHELASTIC_RESTART_COUNT=0%cTORCHELASTIC_MAX_RESTARTS=0%c", 0, 0);
	buf_addf(
	    env, "TORCHELASTIC_RUN_ID=ddip-%s-%llu%c", g->name, (unsigned long long)g->serial, 0);
	buf_addf(env, "TORCHELASTIC_USE_AGENT_STORE=True%c", 0);
}

void
rank_set_autogc(struct rank *k)
{
	if (reachable(k))
		agent_send(
		    rank_agent(k), Nautogc, 0, k->slot, 0, -1, (uint32_t)k->g->set.rank.autogc);
}

void
rank_set_clock(struct rank *k)
{
	if (reachable(k))
		agent_send(
		    rank_agent(k), Nclock, 0, k->slot, 0, -1, (uint32_t)k->g->set.rank.clock);
}

/* Before it listens for others. */
static void
send_addresses(struct rank *k)
{
	struct buf addresses = {0};

	facts_addresses(k->g, &addresses);
	agent_send(
	    rank_agent(k), Naddresses, 0, k->slot, 0, -1, (struct slice){addresses.p, addresses.n});
	buf_free(&addresses);
}

void
rank_join(struct rank *k)
{
	struct group *g = k->g;
	struct buf env = {0}, external = {0};

	rank_env(k, &env);
	rank_set_print(&g->set.external, &external);
	if (external.n)
		buf_addf(&env, "DDIP_EXTERNAL=%s%c", external.p, 0);
	host_env_store(k, &env);
	host_env_program(k, &env);
	if (*g->set.env)
		buf_addf(&env, "DDIP_SETTINGS=%s%c", g->set.env, 0);
	rank_set_state(k, R_INIT);
	send_addresses(k);
	agent_send(rank_agent(k), Tinit, 0, k->slot,
	    agent_tag(rank_agent(k), k->slot, Tinit, on_joined, k), -1, (uint32_t)k->number,
	    (uint32_t)g->size, (uint32_t)host_env_local_rank(k), g->recovery.generation,
	    slice_text(facts_backend(g)), ((struct slice){env.p, env.n}));
	buf_free(&env);
	buf_free(&external);
	if (!g->set.rank.autogc)
		rank_set_autogc(k);
	if (g->set.rank.clock != CLOCKS)
		rank_set_clock(k);
}

void
rank_rejoin(struct rank *k, bool whole, reply_fn *fn)
{
	struct buf env = {0};

	host_env_place(k, &env);
	host_env_store(k, &env);
	send_addresses(k);
	if (whole)
		buf_addf(&env, "DDIP_WHOLE=1%c", 0);
	agent_send(rank_agent(k), Trebuild, 0, k->slot,
	    agent_tag(rank_agent(k), k->slot, Trebuild, fn, k), -1, k->g->recovery.generation,
	    ((struct slice){env.p, env.n}));
	buf_free(&env);
}

void
rank_quit(struct rank *k)
{
	if (reachable(k))
		agent_send(rank_agent(k), Nquit, 0, k->slot, 0, -1);
}

void
rank_kill(struct rank *k)
{
	if (!reachable(k))
		return;
	k->kill_sent = true;
	agent_send(rank_agent(k), Nsignal, 0, k->slot, 0, -1, (uint32_t)SIGKILL, (uint32_t)1);
}

void
rank_signal(struct rank *k, int signo)
{
	if (reachable(k))
		agent_send(rank_agent(k), Nsignal, 0, k->slot, 0, -1, (uint32_t)signo, (uint32_t)0);
}

void
rank_interrupt(struct rank *k, uint32_t number, enum interrupt_why why)
{
	if (reachable(k))
		agent_send(rank_agent(k), Nintr, 0, k->slot, 0, -1, number, (uint32_t)why);
}

void
rank_cancel(struct rank *k, uint64_t tag)
{
	if (reachable(k))
		agent_cancel(rank_agent(k), k->slot, tag);
}

static void
send_abort(struct rank *k, enum abort what, uint32_t ms)
{
	if (reachable(k))
		agent_send(rank_agent(k), Nabort, 0, k->slot, 0, -1, (uint32_t)what, ms);
}

void
rank_abort(struct rank *k, bool always)
{
	send_abort(k, always ? ABORT_ALL : ABORT_KNOWN, 0);
}

void
rank_abort_nccl(struct rank *k)
{
	send_abort(k, ABORT_NCCL, 0);
}

void
rank_disconnect(struct rank *k)
{
	send_abort(k, ABORT_ENDED, 0);
}

void
rank_abort_stuck(struct rank *k, double seconds)
{
	send_abort(k, ABORT_KNOWN, (uint32_t)(seconds * 1000));
}
