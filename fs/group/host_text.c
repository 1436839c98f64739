/* Tells which hosts a group has. */
#include "group/host_text.h"
#include "group/external.h"
#include "group/hosts.h"
#include "host/agent.h"

enum { NS_PER_US = 1000 };

static const char *
state_of(const struct host *h)
{
	if (h->lost)
		return "lost";
	if (!h->ranks || !h->agent || !h->agent->conn)
		return "unused";
	return h->agent->said_hello ? "up" : "connecting";
}

const char *
host_text_name(const struct rank *k)
{
	if (!hosts_named(k->g))
		return agent_host(k->g->hosts.list[0]->agent);
	return k->host ? k->host->name : "-";
}

static void
print_ranks(const struct group *g, const struct host *h, struct buf *out)
{
	const char *sep = "";

	for (int i = 0, last; i < g->size; i = last + 1) {
		last = i;
		if (g->ranks[i].host != h)
			continue;
		while (last + 1 < g->size && g->ranks[last + 1].host == h)
			last++;
		buf_addf(out, last > i ? "%s%d-%d" : "%s%d", sep, i, last);
		sep = ",";
	}
	if (!*sep)
		buf_addc(out, '-');
}

void
host_text_all(struct group *g, struct buf *out)
{
	for (int i = 0; i < g->hosts.n; i++) {
		struct host *h = g->hosts.list[i];
		struct agent *a = h->agent && h->agent->conn ? h->agent : NULL;

		buf_addf(out, "%s state=%s hostname=%s", *h->name ? h->name : agent_host(a),
		    state_of(h), a && a->host ? a->host : "-");
		if (a && a->round_trip)
			buf_addf(out, " round_trip_us=%llu",
			    (unsigned long long)(a->round_trip / NS_PER_US));
		else
			buf_adds(out, " round_trip_us=-");
		if (*h->name)
			buf_addf(out, " slots=%d ranks=", h->slots);
		else
			buf_adds(out, " slots=- ranks=");
		print_ranks(g, h, out);
		buf_addf(out, " queued_bytes=%zu\n", a ? conn_queued(a->conn) : (size_t)0);
		if (a)
			agent_ping(a); /* for the next reader */
	}
}

void
host_text_lacking(const struct group *g, struct buf *out)
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
