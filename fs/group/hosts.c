/* Places ranks on hosts, and holds the hosts' agents. */
#include "group/hosts.h"
#include "base/daemon.h"
#include "group/host.h"
#include "host/agent.h"
#include "host/zygotes.h"
#include "signal_name.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static struct host *
host_new(const char *name, int slots)
{
	struct host *h = xcalloc(1, sizeof(*h));

	*h = (struct host){.name = xstrdup(name), .slots = slots};
	return h;
}

/* This group no longer needs the host's agent. */
static void
close_agent(struct host *h)
{
	if (!h->agent)
		return;
	zygotes_release(h->agent, h->zygote);
	agent_release(h->agent);
	h->agent = NULL;
	h->zygote = 0;
}

/* Frees the hosts that are not in `kept`, which may be NULL. The end of an agent is told to those
 * who read the list, which stays whole until all have ended. */
static void
free_hosts(struct group *g, const struct hostlist_index *kept)
{
	struct host *h;

	for (int i = 0; i < g->hosts.n; i++)
		if (!kept || !hostlist_find(kept, g->hosts.list[i]->name))
			close_agent(g->hosts.list[i]);
	for (int i = 0; i < g->hosts.n; i++) {
		h = g->hosts.list[i];
		if (kept && hostlist_find(kept, h->name))
			continue;
		free(h->name);
		free(h);
	}
}

static void
set_one(struct group *g, struct host *h)
{
	g->hosts.list = xrealloc(g->hosts.list, sizeof(struct host *));
	g->hosts.list[0] = h;
	g->hosts.n = 1;
}

void
hosts_init(struct group *g)
{
	set_one(g, host_new("", INT_MAX));
}

void
hosts_free(struct group *g)
{
	loop_timer_del(g->hosts.timer);
	free_hosts(g, NULL);
	free(g->hosts.list);
	g->hosts = (struct group_hosts){0};
}

long
hosts_slots(const struct group *g)
{
	long n = 0;

	for (int i = 0; i < g->hosts.n; i++)
		n += g->hosts.list[i]->slots;
	return n;
}

/* Does the rank have a process, or is one being started? */
static bool
lives(const struct rank *k)
{
	return k->slot != NO_SLOT;
}

/* Counts the ranks on each host, and numbers the hosts that have any. */
static void
count(struct group *g)
{
	int used = 0;

	for (int i = 0; i < g->hosts.n; i++)
		g->hosts.list[i]->ranks = 0;
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].host)
			g->ranks[i].host->ranks++;
	for (int i = 0; i < g->hosts.n; i++)
		g->hosts.list[i]->index = g->hosts.list[i]->ranks ? used++ : 0;
	g->hosts.used = used;
}

/* Does the group's store run on this host? */
static bool
has_store(const struct group *g, const struct host *h)
{
	return g->store.host == h && g->store.slot != NO_SLOT;
}

/* Fails if the new list omits the store's host, or has too little room for a host's processes. */
static int
check_living(const struct group *g, const struct hostlist_index *to, struct err *e)
{
	for (int i = 0; i < g->hosts.n; i++)
		g->hosts.list[i]->living = 0;
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].host && lives(&g->ranks[i]))
			g->ranks[i].host->living++;
	for (int i = 0; i < g->hosts.n; i++) {
		const struct host *h = g->hosts.list[i];
		const struct host_slots *seats = hostlist_find(to, h->name);
		int slots = seats ? seats->slots : 0;

		if (has_store(g, h) && !slots)
			return fail(e, EINVAL,
			    "hosts: the store where the ranks meet is on %s: name it, or stop the "
			    "group",
			    host_in_words(h));
		if (slots < h->living)
			return fail(e, EINVAL,
			    "hosts: %d rank%s on %s: name it with that many, or stop the group",
			    h->living, h->living == 1 ? " lives" : "s live", host_in_words(h));
	}
	return 0;
}

/* Frees the hosts that are no longer named, and all pointers to them. */
static void
forget(struct group *g, const struct hostlist_index *to)
{
	if (g->store.host && !hostlist_find(to, g->store.host->name))
		g->store.host = NULL;
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].host && !hostlist_find(to, g->ranks[i].host->name))
			g->ranks[i].host = NULL;
	free_hosts(g, to);
}

/* The hosts of the new list, reusing existing ones with the same name. */
static struct host **
hosts_of(const struct group *g, const struct hostlist *to, const struct hostlist_index *index)
{
	struct host **list = xcalloc(to->n, sizeof(struct host *));

	for (int i = 0; i < g->hosts.n; i++) {
		const struct host_slots *seats = hostlist_find(index, g->hosts.list[i]->name);

		if (seats)
			list[seats - to->host] = g->hosts.list[i];
	}
	for (size_t i = 0; i < to->n; i++) {
		if (!list[i])
			list[i] = host_new(to->host[i].name, 0);
		list[i]->slots = to->host[i].slots;
		list[i]->lost = false;
	}
	return list;
}

int
hosts_set(struct group *g, const struct hostlist *to, struct err *e)
{
	static char this_machine[] = "";
	struct host_slots here = {this_machine, INT_MAX};
	const struct hostlist only_here = {&here, 1};
	struct hostlist_index *index;
	struct host **list;
	int r;

	if (!to->n)
		to = &only_here;
	index = hostlist_index(to);
	r = check_living(g, index, e);
	if (r == 0) {
		list = hosts_of(g, to, index);
		forget(g, index);
		free(g->hosts.list);
		g->hosts.list = list;
		g->hosts.n = (int)to->n;
		count(g);
		g->hosts.outdated = false;
	}
	hostlist_index_free(index);
	return r;
}

void
hosts_set_later(struct group *g)
{
	g->hosts.outdated = true;
}

void
hosts_update(struct group *g)
{
	struct hostlist list = {0};
	struct err e;

	if (!g->hosts.outdated)
		return;
	/* the words were valid when they were set */
	if (!*g->set.hosts.names || hostlist_words(g->set.hosts.names, &list, &e) == 0)
		hosts_set(g, &list, &e);
	hostlist_free(&list);
}

/* ---- agents ---- */

/* The setting `env`, and the signal that must not kill ranks. The caller frees it. */
static char *
zygote_env(const struct settings *s)
{
	if (!s->on_preempt.signo)
		return xstrdup(s->env);
	return xasprintf(
	    "%s" ENGINE_ENV_ON_PREEMPT "=%s\n", s->env, signal_name(s->on_preempt.signo));
}

/* Gets a host's agent and zygote as the settings require. Returns 0, or -errno with *e set. */
static int
open_agent(const struct group *g, struct host *h, struct err *e)
{
	const struct settings *s = &g->set;
	struct agent *a = host_agent(g, h, e);
	char *env;

	if (!a)
		return -e->no;
	if (h->agent != a) {
		close_agent(h);
		agent_hold(a);
		h->agent = a;
	}
	h->agent_serial = a->serial;
	env = zygote_env(s);
	h->zygote =
	    zygotes_want(a, h->zygote, &(struct zygote_spec){s->python, s->cwd, s->preload, env});
	free(env);
	return 0;
}

bool
hosts_agent_gone(const struct host *h)
{
	return !h->agent || !h->agent->conn || h->agent->serial != h->agent_serial;
}

void
hosts_lose(struct host *h)
{
	h->lost = true;
}

void
hosts_lack(struct group *g, bool lacking)
{
	g->hosts.lacking = lacking;
}

void
hosts_forgive(struct group *g)
{
	for (int i = 0; i < g->hosts.n; i++)
		g->hosts.list[i]->lost = false;
}

bool
hosts_any_alive(const struct group *g)
{
	for (int i = 0; i < g->hosts.n; i++)
		if (g->hosts.list[i]->ranks && !hosts_agent_gone(g->hosts.list[i]))
			return true;
	return false;
}

/* ---- places ---- */

/* Which local ranks are taken on a host: an array indexed by local rank, as long as the group's
 * size. The caller frees it. */
static bool *
local_ranks(const struct group *g, const struct host *h)
{
	bool *taken = xcalloc((size_t)g->size + 1, sizeof(*taken));

	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].host == h && g->ranks[i].local_rank < g->size)
			taken[g->ranks[i].local_rank] = true;
	return taken;
}

/* Places unplaced ranks, from *at on, on this host until it is full. */
static void
fill(struct group *g, struct host *h, int *at)
{
	bool *taken = h->ranks ? local_ranks(g, h) : NULL;
	int local = 0;

	for (; *at < g->size && h->ranks < h->slots; (*at)++) {
		struct rank *k = &g->ranks[*at];

		if (k->host)
			continue;
		while (taken && taken[local])
			local++;
		k->host = h;
		k->local_rank = local++;
		h->ranks++;
	}
	free(taken);
}

/* The number of ranks that the hosts that are not lost still have room for. */
static long
room(const struct group *g)
{
	long n = 0;

	for (int i = 0; i < g->hosts.n; i++)
		if (!g->hosts.list[i]->lost)
			n += MAX(g->hosts.list[i]->slots - g->hosts.list[i]->ranks, 0);
	return n;
}

/* Places all unplaced ranks. Returns 0, or -EHOSTDOWN with *e set and none placed. */
static int
place(struct group *g, struct err *e)
{
	int homeless = 0, at = 0;

	count(g);
	for (int i = 0; i < g->size; i++)
		homeless += !g->ranks[i].host;
	if (homeless > room(g))
		return fail(e, EHOSTDOWN, "%d rank%s no place, and hosts has room for %ld more",
		    homeless, homeless == 1 ? " has" : "s have", room(g));
	for (int i = 0; i < g->hosts.n; i++)
		if (!g->hosts.list[i]->lost)
			fill(g, g->hosts.list[i], &at);
	count(g);
	return 0;
}

static int
check_gpus_of(const struct group *g, const struct host *h, struct err *e)
{
	const char *words = g->set.gpus;
	struct nvml_gpu *own;
	struct gpus gpus;
	int r = host_choose_gpus(h, words, &gpus, &own, e);

	free(own);
	if (r < 0 || !host_is_named(h))
		return r < 0 ? r : gpus_check_size(&gpus, g->set.size, words, e);
	if (!gpus.n || h->ranks <= gpus.n)
		return 0;
	return fail(e, EINVAL,
	    "gpus %.200s names %d, but %d ranks are on %s: name as many, or one as often as ranks "
	    "shall share it (gpus 0,0)",
	    words, gpus.n, h->ranks, h->name);
}

/* Fails if a host has more ranks than there are GPUs to choose from. */
static int
check_gpus(const struct group *g, struct err *e)
{
	for (int i = 0; i < g->hosts.n; i++)
		if (g->hosts.list[i]->ranks && check_gpus_of(g, g->hosts.list[i], e) < 0)
			return -e->no;
	return 0;
}

/* Places all ranks again. Lost hosts are used only if the others lack room. */
static int
place_again(struct group *g, struct err *e)
{
	for (int i = 0; i < g->size; i++)
		g->ranks[i].host = NULL;
	count(g);
	if (room(g) < g->size)
		hosts_forgive(g);
	if (room(g) < g->size)
		return fail(e, EINVAL,
		    "size %d, but hosts has room for %ld ranks: give the number with each name "
		    "(a:4)",
		    g->size, room(g));
	return place(g, e);
}

/* Gets the agents of all hosts that have ranks. */
static int
open_agents(struct group *g, struct err *e)
{
	for (int i = 0; i < g->hosts.n; i++)
		if (g->hosts.list[i]->ranks && open_agent(g, g->hosts.list[i], e) < 0)
			return -e->no;
	return 0;
}

int
hosts_start(struct group *g, struct err *e)
{
	g->hosts.lacking = false;
	if (place_again(g, e) < 0 || check_gpus(g, e) < 0)
		return -e->no;
	return open_agents(g, e);
}

int
hosts_warm(struct group *g, struct err *e)
{
	g->hosts.lacking = false;
	if (place_again(g, e) < 0 || open_agents(g, e) < 0)
		return -e->no;
	return check_gpus(g, e);
}

int
hosts_replace(struct group *g, struct err *e)
{
	struct seat {
		struct host *host;
		int local_rank;
	} *was = xcalloc((size_t)g->size + 1, sizeof(*was));

	int r;

	count(g);
	for (int i = g->size; i-- > 0;) {
		struct rank *k = &g->ranks[i];
		struct host *h = k->host;

		was[i] = (struct seat){h, k->local_rank};
		/* a host that was named again may have less room than before */
		if (h && !lives(k) && (h->lost || h->ranks > h->slots)) {
			k->host = NULL;
			h->ranks--;
		}
	}
	r = place(g, e);
	if (r == 0)
		r = check_gpus(g, e);
	for (int i = 0; r < 0 && i < g->size; i++) {
		g->ranks[i].host = was[i].host;
		g->ranks[i].local_rank = was[i].local_rank;
	}
	free(was);
	count(g);
	return r < 0 ? r : open_agents(g, e);
}

/* ---- who is not waited for when a group ends ---- */

static bool
is_ending(const struct group *g)
{
	return g->life.state == G_STOPPING || g->life.state == G_RESTARTING;
}

static void
mark(const struct host *h, int slot)
{
	if (slot != NO_SLOT && !hosts_agent_gone(h))
		h->agent->slots[slot_place((uint32_t)slot)].unwanted = true;
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
give_up(struct group *g, bool (*is)(const struct host *h), void (*drop)(struct host *h))
{
	if (!is_ending(g))
		return;
	mark_all(g);
	for (int i = 0; i < g->hosts.n && is_ending(g); i++) {
		struct host *h = g->hosts.list[i];

		if (!hosts_agent_gone(h) && is(h) && all_unwanted(h->agent))
			drop(h);
	}
}

static bool
is_connecting(const struct host *h)
{
	return host_is_far(h) && !h->agent->hello;
}

static void
drop_connecting(struct host *h)
{
	static const struct err why = {ECANCELED, "the group was ended before it was connected"};

	agent_drop(h->agent, &why);
}

void
hosts_end_connecting(struct group *g)
{
	give_up(g, is_connecting, drop_connecting);
}

static bool
is_any(const struct host *h)
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
hosts_end_silent(struct group *g)
{
	give_up(g, is_any, drop_silent);
}
