/*
 * Ranks that are processes of other programs: which they are, and how one joins. With them,
 * engine/ddip_engine/dist.py leaves the default process group to the cells.
 */
#include "group/external.h"
#include <errno.h>
#include <stdlib.h>

static bool
is_external(const struct settings *s, int rank)
{
	return rank < s->external.n && s->external.has[rank];
}

bool
external_is(const struct rank *k)
{
	return is_external(&k->g->set, k->number);
}

void
external_set(struct settings *s, const int *ranks, int n)
{
	s->external.n = n ? ranks[n - 1] + 1 : 0;
	free(s->external.has);
	s->external.has = xcalloc((size_t)s->external.n + 1, sizeof(*s->external.has));
	while (n-- > 0)
		s->external.has[ranks[n]] = true;
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
		if (!is_external(&g->set, i))
			ranks[n++] = i;
	return n;
}

bool
external_any(const struct group *g)
{
	for (int i = 0; i < MIN(g->size, g->set.external.n); i++)
		if (g->set.external.has[i])
			return true;
	return false;
}

int
external_first(const struct group *g)
{
	int i = 0;

	while (i < g->size && is_external(&g->set, i))
		i++;
	return i < g->size ? i : 0;
}

bool
external_others_are(const struct group *g, enum rank_state state)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].state != state && !is_external(&g->set, i))
			return false;
	return true;
}

int
external_leaves_some(const struct group *g, struct err *e)
{
	for (int i = 0; i < g->size; i++)
		if (!is_external(&g->set, i))
			return 0;
	return fail(
	    e, EINVAL, "external: all %d ranks are, and none is left for ddipfs to start", g->size);
}

int
external_check(const struct group *g, struct err *e)
{
	for (int i = g->size; i < g->set.external.n; i++)
		if (g->set.external.has[i])
			return fail(
			    e, EINVAL, "external %d: the group has ranks 0..%d", i, g->size - 1);
	return external_leaves_some(g, e);
}

void
external_list(const struct settings *s, struct buf *out)
{
	const char *sep = "";

	for (int i = 0; i < s->external.n; i++)
		if (s->external.has[i]) {
			buf_addf(out, "%s%d", sep, i);
			sep = ",";
		}
}
