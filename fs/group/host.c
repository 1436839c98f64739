/* What a host is called, whether it is this machine, and what its ranks are told. */
#include "group/host.h"
#include "group/external.h"
#include "host/agent.h"
#include "host/host_gpus.h"
#include "host/launcher.h"
#include <stdlib.h>
#include <string.h>

#define LOOPBACK "127.0.0.1"

bool
hosts_named(const struct group *g)
{
	return g->hosts.n > 0 && host_is_named(g->hosts.list[0]);
}

bool
hosts_here(const struct group *g)
{
	return !hosts_named(g) || strcmp(g->set.hosts.launcher, LAUNCHER_HERE) == 0;
}

bool
hosts_private(const struct group *g)
{
	return hosts_here(g) && !*g->set.hosts.master_addr;
}

bool
host_is_named(const struct host *h)
{
	return *h->name;
}

bool
host_is_far(const struct host *h)
{
	return h && h->agent && !h->agent->here;
}

struct host *
host_of_rank(const struct rank *k)
{
	return k->host || hosts_named(k->g) ? k->host : k->g->hosts.list[0];
}

pid_t
host_local_pid(const struct rank *k)
{
	return k->host && k->host->agent && !host_is_far(k->host) ? k->pid : 0;
}

struct agent *
host_agent(const struct group *g, const struct host *h, struct err *e)
{
	const struct host_settings *s = &g->set.hosts;
	bool here = strcmp(s->launcher, LAUNCHER_HERE) == 0;
	const struct agent_spec spec = {
	    h->name, s->launcher, here ? "" : s->engine, here ? 0 : s->linger};

	return agent_of(host_is_named(h) ? &spec : &agent_spec_here, e);
}

struct agent *
host_reporter(const struct host *h)
{
	return host_is_named(h) ? h->agent : agent_here();
}

int
host_choose_gpus(
    const struct host *h, const char *words, struct gpus *out, struct nvml_gpu **own, struct err *e)
{
	*own = NULL;
	return host_is_named(h) ? gpus_unlisted(words, own, out, e) : host_gpus_here(words, out, e);
}

/* ---- names ---- */

const char *
host_label(const struct host *h)
{
	if (!h)
		return "-";
	return host_is_named(h) ? h->name : agent_host(h->agent);
}

const char *
host_in_words(const struct host *h)
{
	return h && host_is_named(h) ? h->name : "this machine";
}

void
host_blame(const struct host *h, struct err *e)
{
	struct err why = *e;

	if (host_is_named(h))
		fail(e, why.no, "host %s: %.900s", h->name, why.text);
}

void
hosts_lacking(const struct group *g, struct buf *out)
{
	const char *sep = "";

	for (int i = 0; i < g->size; i++) {
		const struct rank *k = &g->ranks[i];

		if (k->slot != NO_SLOT || external_is(k))
			continue;
		buf_addf(out, "%s%d (%s)", sep, i, k->host ? k->host->name : "-");
		sep = ", ";
	}
}

/* ---- what ranks are told ---- */

/* Appends a host name without the user that ssh accepts in front of it, and without brackets. */
static void
add_bare(const char *name, struct buf *out)
{
	const char *user = strchr(name, '@');
	size_t n;

	name = user ? user + 1 : name;
	n = strlen(name);
	if (*name == '[')
		buf_add(out, name + 1, n - 2);
	else
		buf_add(out, name, n);
}

void
host_env_master(const struct group *g, struct buf *out)
{
	const struct host *h = g->size ? g->ranks[0].host : NULL;

	if (g->store.slot != NO_SLOT)
		h = g->store.host; /* the store stays there when rank 0 moves */
	if (*g->set.hosts.master_addr)
		buf_adds(out, g->set.hosts.master_addr);
	else if (hosts_here(g) || !h)
		buf_adds(out, LOOPBACK);
	else
		add_bare(h->name, out);
}

bool
host_env_sees_one(const struct group *g)
{
	struct nvml_gpu *own;
	struct gpus gpus;
	struct err e;
	bool is =
	    host_choose_gpus(g->hosts.list[0], g->set.gpus, &gpus, &own, &e) == 0 && gpus.alone;

	free(own);
	return is;
}

int
host_env_local_rank(const struct rank *k)
{
	return host_env_sees_one(k->g) ? 0 : k->local_rank;
}

int
host_env_local_size(const struct rank *k)
{
	return host_env_sees_one(k->g) || !k->host ? 1 : k->host->ranks;
}

void
host_env_place(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;
	bool alone = host_env_sees_one(g) || !k->host;
	int node = alone ? k->number : k->host->index;

	buf_addf(env, "LOCAL_RANK=%d%cLOCAL_WORLD_SIZE=%d%c", host_env_local_rank(k), 0,
	    host_env_local_size(k), 0);
	buf_addf(env, "GROUP_RANK=%d%cGROUP_WORLD_SIZE=%d%c", node, 0,
	    alone ? g->size : g->hosts.used, 0);
	if (hosts_named(g))
		buf_addf(env, "NODE_RANK=%d%c", node, 0);
	buf_adds(env, "MASTER_ADDR=");
	host_env_master(g, env);
	buf_addf(env, "%cMASTER_PORT=%u%c", 0, g->store.port, 0);
}

void
host_env_program(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;

	if (!k->host || !host_is_named(k->host))
		return;
	buf_addf(env, "DDIP_HOST=%s%c", k->host->name, 0);
	if (g->set.cwd_is_set)
		buf_addf(env, "DDIP_CWD=%s%c", g->set.cwd, 0);
}

void
host_env_store(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;

	if (g->store.slot != NO_SLOT && hosts_private(g))
		buf_addf(env, "DDIP_STORE=store%c", 0);
	for (int i = 0; i < g->size && !hosts_here(g); i++)
		if (g->ranks[i].host && g->ranks[i].host != k->host) {
			buf_adds(env, "DDIP_PEER=");
			add_bare(g->ranks[i].host->name, env);
			buf_addc(env, '\0');
			return;
		}
}

void
host_env_gpus(const struct rank *k, struct buf *env)
{
	struct nvml_gpu *own;
	struct gpus gpus;
	struct err e;

	if (!k->host)
		return;
	/* the words were valid when they were set */
	if (host_choose_gpus(k->host, k->g->set.gpus, &gpus, &own, &e) == 0)
		gpus_env(&gpus, k->local_rank, k->number, env);
	/* else NCCL treats all ranks on this machine as one host that shares its GPUs */
	if (host_is_named(k->host) && hosts_here(k->g) && !gpus.alone)
		buf_addf(env, "NCCL_HOSTID=%s%c", k->host->name, 0);
	free(own);
}
