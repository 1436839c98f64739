/* Gives up hosts of a group that ends. */
#include "group/host_end.h"
#include "group/hosts.h"
#include "host/agent.h"
#include <errno.h>

static bool
is_ending(const struct group *g)
{
	return g->life.state == G_STOPPING || g->life.state == G_RESTARTING;
}

/* Each host that has processes of this group, until the last one's end starts others, perhaps. */
static void
each_host(struct group *g, void (*fn)(const struct host *h))
{
	for (int i = 0; i < g->size && is_ending(g); i++)
		if (g->ranks[i].slot != NO_SLOT)
			fn(g->ranks[i].host);
	if (is_ending(g) && g->store.slot != NO_SLOT)
		fn(g->store.host);
}

static void
give_up_connecting(const struct host *h)
{
	static const struct err why = {ECANCELED, "the group was ended before it was connected"};
	struct agent *a = h->agent;

	if (!hosts_agent_gone(h) && !a->here && !a->said_hello && a->users == 1)
		agent_drop(a, &why);
}

void
host_end_connecting(struct group *g)
{
	each_host(g, give_up_connecting);
}

static void
give_up_silent(const struct host *h)
{
	struct err why = {0};

	if (hosts_agent_gone(h))
		return;
	fail(&why, EHOSTDOWN, "host %s is lost: it did not tell that its processes have ended",
	    h->name);
	agent_drop(h->agent, &why);
}

void
host_end_silent(struct group *g)
{
	each_host(g, give_up_silent);
}
