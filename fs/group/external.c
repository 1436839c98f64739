/*
 * Ranks that are processes of other programs: which they are, and how one joins. With them,
 * engine/ddip_engine/groups/dist.py leaves the default process group to the cells.
 */
#include "group/external.h"
#include <errno.h>

bool
external_is(const struct rank *k)
{
	return rank_set_has(&k->g->set.external, k->number);
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

void
external_own(const struct group *g, struct rank_set *out)
{
	*out = (struct rank_set){0};
	for (int i = 0; i < g->size; i++)
		if (!rank_set_has(&g->set.external, i))
			rank_set_add(out, i);
}

bool
external_any(const struct group *g)
{
	int first = rank_set_next(&g->set.external, 0);

	return first >= 0 && first < g->size;
}

int
external_first(const struct group *g)
{
	int i = 0;

	while (i < g->size && rank_set_has(&g->set.external, i))
		i++;
	return i < g->size ? i : 0;
}

bool
external_others_are(const struct group *g, enum rank_state state)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].state != state && !rank_set_has(&g->set.external, i))
			return false;
	return true;
}

int
external_leaves_some(const struct group *g, struct err *e)
{
	for (int i = 0; i < g->size; i++)
		if (!rank_set_has(&g->set.external, i))
			return 0;
	return fail(
	    e, EINVAL, "external: all %d ranks are, and none is left for ddipfs to start", g->size);
}

int
external_check(const struct group *g, struct err *e)
{
	int beyond = rank_set_next(&g->set.external, g->size);

	if (beyond >= 0)
		return fail(
		    e, EINVAL, "external %d: the group has ranks 0..%d", beyond, g->size - 1);
	return external_leaves_some(g, e);
}
