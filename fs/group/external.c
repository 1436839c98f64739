/*
 * Ranks that are other programs' processes: which they are, and how one joins.
 * engine/ddip_engine/dist.py leaves the default process group to the cells in that case.
 */
#include "group/external.h"
#include <errno.h>

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
external_check(const struct group *g, struct err *e)
{
	for (int i = g->size; i < MAX_RANKS; i++)
		if (g->set.external[i])
			return fail(
			    e, EINVAL, "external %d: the group has ranks 0..%d", i, g->size - 1);
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
