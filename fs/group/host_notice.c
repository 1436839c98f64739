/* Passes on notices from the agents about themselves. */
#include "group/host_notice.h"
#include "group/journal.h"
#include "group/preempt.h"
#include "group/registry.h"
#include "group/start.h"
#include "host/agent.h"
#include "host/zygotes.h"

static void
preempted(struct agent *a, const struct msg *m)
{
	uint32_t signo;

	if (wire_unpack(m, Npreempted, NULL, &signo) == 0)
		preempt_signal((int)signo, agent_host(a));
}

/* Logs an event, in all groups on the host, about which connection carries its packets. */
static void
on_way(struct agent *a, bool direct, const char *why)
{
	struct group *g;

	if (!direct)
		note("host %s: no direct connection: %s", agent_host(a), why);
	TAILQ_FOREACH (g, &groups, link)
		for (int i = 0; i < g->hosts.n; i++) {
			const struct host *h = g->hosts.list[i];

			if (h->agent == a && direct)
				journal_event(g, "host %s direct-connection", h->name);
			else if (h->agent == a)
				journal_event(g, "host %s no-direct-connection %s", h->name, why);
		}
}

static void
not_preloaded(struct agent *a, const struct msg *m)
{
	struct group *g;
	struct slice lines;
	uint32_t zygote;

	if (wire_unpack(m, Npreload, NULL, &zygote, &lines) < 0)
		return;
	zygotes_set_not_preloaded(a, zygote, lines);
	TAILQ_FOREACH (g, &groups, link)
		for (int i = 0; i < g->hosts.n; i++)
			if (g->hosts.list[i]->agent == a && g->hosts.list[i]->zygote == zygote)
				start_tell_preload(g, g->hosts.list[i]);
}

static void
left(struct agent *a, const struct msg *m)
{
	struct slice name, process;
	struct group *g;

	if (wire_unpack(m, Nleft, NULL, &name, &process) < 0)
		return;
	TAILQ_FOREACH (g, &groups, link)
		if (slice_eq(name, g->name))
			journal_event(g, "left %.*s", (int)process.n, process.p);
}

static const struct {
	int type;
	void (*fn)(struct agent *a, const struct msg *m);
} notices[] = {
    {Npreempted, preempted},
    {Npreload, not_preloaded},
    {Nleft, left},
};

static void
on_notice(struct agent *a, struct msg *m)
{
	for (size_t i = 0; i < ARRAY_LEN(notices); i++)
		if (notices[i].type == m->type)
			notices[i].fn(a, m);
}

void
host_notice_init(void)
{
	agent_notice = on_notice;
	agent_way = on_way;
}
