/* Ranks that are other programs' processes: which they are, how one joins. That the engines leave
 * the default process group to the cells then is engine/dist.py's. */
#include "group/external.h"
#include "host/gpustat.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/recovery.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool
external_is(const struct rank *k)
{
	return k->g->set.external[k->number];
}

int
external_refuse(const struct rank *k, struct err *e)
{
	if (!external_is(k))
		return 0;
	return fail(e, EOPNOTSUPP,
	    "rank %d is external: a process that ddipfs did not start (%s/rank%d/env tells how it "
	    "joins)",
	    k->number, k->g->name, k->number);
}

int
external_own(const struct group *g, int *ranks)
{
	int n = 0;

	for (int i = 0; i < g->size; i++)
		if (!g->set.external[i])
			ranks[n++] = i;
	return n;
}

bool
external_any(const struct group *g)
{
	int own[MAX_RANKS];

	return external_own(g, own) < g->size;
}

int
external_first(const struct group *g)
{
	int own[MAX_RANKS];

	return external_own(g, own) ? own[0] : 0;
}

bool
external_others_are(const struct group *g, enum rank_state state)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].state != state && !g->set.external[i])
			return false;
	return true;
}

int
external_leaves_some(const struct group *g, struct err *e)
{
	int own[MAX_RANKS];

	if (external_own(g, own) > 0)
		return 0;
	return fail(
	    e, EINVAL, "external: all %d ranks are, and none is left for ddipfs to start", g->size);
}

int
external_begin(struct group *g, struct err *e)
{
	struct err dropped;

	for (int i = g->size; i < MAX_RANKS; i++)
		if (g->set.external[i])
			return fail(
			    e, EINVAL, "external %d: the group has ranks 0..%d", i, g->size - 1);
	for (int i = 0; i < g->size; i++)
		if (external_refuse(&g->ranks[i], &dropped) < 0)
			queue_drop_queued(&g->ranks[i], &dropped);
	return external_leaves_some(g, e);
}

void
external_list(const struct settings *s, struct buf *out)
{
	const char *sep = "";

	for (int i = 0; i < MAX_RANKS; i++)
		if (s->external[i]) {
			buf_addf(out, "%s%d", sep, i);
			sep = ",";
		}
}

/* By itself gloo takes the address of the host's name, where the ranks do not listen. */
static void
add_interface(const struct settings *set, struct buf *out)
{
	static const char key[] = "GLOO_SOCKET_IFNAME=";
	const char *inherited = getenv("GLOO_SOCKET_IFNAME");
	char *env = xstrdup(set->env), *save, *line = strtok_r(env, "\n", &save);

	while (line && strncmp(line, key, sizeof(key) - 1) != 0)
		line = strtok_r(NULL, "\n", &save);
	if (line)
		buf_adds(out, line);
	else
		buf_addf(out, "%s%s", key, inherited ? inherited : "lo");
	buf_addc(out, '\0');
	free(env);
}

int
external_env(const struct place *at, struct buf *out, struct err *e)
{
	struct rank *k = group_rank(at->g, at->rank);
	struct group *g = at->g;
	size_t from = out->n;

	if (!k)
		return fail(e, ENODEV, "the rank is gone");
	if (g->life.state != G_READY)
		return fail(e, ESRCH,
		    "rank %d has nobody to join: the group is %s (echo start > %s/ctl)", k->number,
		    group_state_name(g), g->name);
	if (g->recovery.needed || recovery_runs(g))
		return fail(e, EBUSY,
		    "the process group of %s is being made anew: once status says idle there is "
		    "something to join",
		    g->name);
	if (g->store.slot == NO_SLOT || !g->store.port)
		return fail(e, EOPNOTSUPP,
		    "%s has no store to meet at: backend none, or a python without torch", g->name);
	rank_env(k, out);
	gpustat_env(g, k->number, out);
	add_interface(&g->set, out);
	for (size_t i = from; i < out->n; i++)
		if (out->p[i] == '\0')
			out->p[i] = '\n';
	return 0;
}
