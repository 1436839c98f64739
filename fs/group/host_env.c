/* The environment of ranks that depends on where they run. */
#include "group/host_env.h"
#include "group/hosts.h"
#include "host/agent.h"
#include "host/gpus.h"
#include <stdlib.h>
#include <string.h>

#define LOOPBACK "127.0.0.1"

bool
host_env_is_private(const struct group *g)
{
	return hosts_here(g) && !*g->set.hosts.master_addr;
}

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
	bool is = hosts_gpus(g->hosts.list[0], g->set.gpus, &gpus, &own, &e) == 0 && gpus.alone;

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

	if (!k->host || !*k->host->name)
		return;
	buf_addf(env, "DDIP_HOST=%s%c", k->host->name, 0);
	if (g->set.cwd_is_set)
		buf_addf(env, "DDIP_CWD=%s%c", g->set.cwd, 0);
}

void
host_env_store(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;

	if (g->store.slot != NO_SLOT && host_env_is_private(g))
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
	if (hosts_gpus(k->host, k->g->set.gpus, &gpus, &own, &e) == 0)
		gpus_env(&gpus, k->local_rank, k->number, env);
	/* else NCCL treats all ranks on this machine as one host that shares its GPUs */
	if (*k->host->name && hosts_here(k->g) && !gpus.alone)
		buf_addf(env, "NCCL_HOSTID=%s%c", k->host->name, 0);
	free(own);
}
