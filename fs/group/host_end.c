/* Gives up hosts of a group that is ending. */
#include "group/host_end.h"
#include "group/hosts.h"
#include "host/agent.h"
#include <errno.h>

static bool
is_ending(const struct group *g)
{
	return g->life.state == G_STOPPING || g->life.state == G_RESTARTING;
}

static void
mark(const struct host *h, int slot)
{
	if (slot != NO_SLOT && !hosts_agent_gone(h))
		h->agent->slots[slot].unwanted = true;
}

/* Marks all processes of this group as unwanted: it no longer waits for them. */
static void
mark_all(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		mark(g->ranks[i].host, g->ranks[i].slot);
	mark(g->store.host, g->store.slot);
}

/* Are all processes of the agent unwanted? Other groups must not lose theirs. */
static bool
all_unwanted(const struct agent *a)
{
	bool any = false;

	for (int i = 0; i < a->slot_room; i++) {
		if (a->slots[i].ops && !a->slots[i].unwanted)
			return false;
		any |= a->slots[i].ops != NULL;
	}
	return any;
}

/* Drops the hosts that match, until the group is no longer ending: the end of its last process may
 * start others. */
static void
give_up(struct group *g, bool (*is)(const struct agent *a), void (*drop)(struct host *h))
{
	if (!is_ending(g))
		return;
	mark_all(g);
	for (int i = 0; i < g->hosts.n && is_ending(g); i++) {
		struct host *h = g->hosts.list[i];

		if (!hosts_agent_gone(h) && is(h->agent) && all_unwanted(h->agent))
			drop(h);
	}
}

static bool
is_connecting(const struct agent *a)
{
	return !a->here && !a->said_hello;
}

static void
drop_connecting(struct host *h)
{
	static const struct err why = {ECANCELED, "the group was ended before it was connected"};

	agent_drop(h->agent, &why);
}

void
host_end_connecting(struct group *g)
{
	give_up(g, is_connecting, drop_connecting);
}

static bool
is_any(const struct agent *a)
{
	return true;
}

static void
drop_silent(struct host *h)
{
	struct err why = {0};

	fail(&why, EHOSTDOWN, "host %s is lost: it did not tell that its processes have ended",
	    h->name);
	agent_drop(h->agent, &why);
}

void
host_end_silent(struct group *g)
{
	give_up(g, is_any, drop_silent);
}
