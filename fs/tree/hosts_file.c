/* The list of a group's hosts. */
#include "tree/hosts_file.h"
#include "group/facts.h"
#include "group/host.h"
#include "host/agent.h"
#include <stdlib.h>

static const char *
state_of(const struct host *h)
{
	if (h->lost)
		return "lost";
	if (!h->ranks || !h->agent || !h->agent->conn)
		return "unused";
	return h->agent->hello ? "up" : "connecting";
}

/* Consecutive ranks on one host, from first to last. next: the host's next stretch; -1: none. */
struct stretch {
	int first, last, next;
};

/* The stretches of all ranks, in order; the caller frees them. Sets heads[h->index], which the
 * caller provides filled with -1, to the first stretch of each host that has ranks. */
static struct stretch *
stretches(const struct group *g, int *heads)
{
	struct stretch *s = xcalloc((size_t)g->size + 1, sizeof(*s));
	int n = 0;

	for (int i = g->size; i-- > 0;) {
		const struct host *h = g->ranks[i].host;

		if (!h)
			continue;
		if (n && i + 1 < g->size && g->ranks[i + 1].host == h) {
			s[n - 1].first = i;
			continue;
		}
		s[n] = (struct stretch){i, i, heads[h->index]};
		heads[h->index] = n++;
	}
	return s;
}

static void
print_ranks(const struct stretch *s, int at, struct buf *out)
{
	const char *sep = "";

	for (; at >= 0; at = s[at].next) {
		buf_addf(out, s[at].last > s[at].first ? "%s%d-%d" : "%s%d", sep, s[at].first,
		    s[at].last);
		sep = ",";
	}
}

static void
print_host(const struct group *g, const struct host *h, const struct stretch *ranks,
    const int *heads, struct record *out)
{
	struct agent *a = h->agent && h->agent->conn ? h->agent : NULL;
	int head = h->ranks ? heads[h->index] : -1;
	bool named = host_is_named(h);
	struct buf b = {0};

	record_begin(out, NULL);
	record_text(out, "host", host_label(a || named ? h : NULL));
	record_text(out, "state", state_of(h));
	record_text(out, "hostname", a ? a->host : NULL);
	if (a && a->round_trip)
		record_number(out, "round_trip_us", (long long)(a->round_trip / NS_PER_US));
	else
		record_none(out, "round_trip_us");
	if (named)
		record_number(out, "slots", h->slots);
	else
		record_none(out, "slots");
	print_ranks(ranks, head, &b);
	record_text(out, "ranks", head < 0 ? NULL : b.p);
	buf_free(&b);
	if (a && host_is_far(h))
		record_text(out, "connection", a->line.direct ? "direct" : "launcher");
	else
		record_none(out, "connection");
	record_number(out, "queued_bytes", a ? (long long)conn_queued(a->conn) : 0);
	facts_print(head < 0 ? NULL : g->ranks[ranks[head].first].facts, out);
	record_end(out);
	if (a)
		agent_ping(a); /* for the next reader */
}

/* A record for each host. Measures the round trips again, for the next reader. */
static void
print_hosts(struct group *g, struct record *out)
{
	int *heads = xmalloc(((size_t)g->hosts.used + 1) * sizeof(*heads));
	struct stretch *ranks;

	for (int i = 0; i <= g->hosts.used; i++)
		heads[i] = -1;
	ranks = stretches(g, heads);
	record_begin_list(out, NULL);
	for (int i = 0; i < g->hosts.n; i++)
		print_host(g, g->hosts.list[i], ranks, heads, out);
	record_end_list(out);
	free(ranks);
	free(heads);
}

int
hosts_file_text(const struct place *at, struct buf *out, struct err *e)
{
	print_hosts(at->g, &(struct record){.out = out, .form = RECORD_WORDS});
	return 0;
}

int
hosts_file_json(const struct place *at, struct buf *out, struct err *e)
{
	print_hosts(at->g, &(struct record){.out = out, .form = RECORD_JSON});
	return 0;
}
