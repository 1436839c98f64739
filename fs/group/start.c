/* Checks the prerequisites of a start, and prepares it. */
#include "group/start.h"
#include "group/external.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/queue.h"
#include "group/rank.h"
#include "host/zygotes.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static int
check_run_dir(const struct group *g, struct err *e)
{
	if (access(g->run_dir, W_OK) == 0)
		return 0;
	return fail(e, errno,
	    "the output directory %s was deleted: rmdir the group and make it again", g->run_dir);
}

/* Drops what is queued for ranks that have become external since: it would never run. */
static int
check_external(struct group *g, struct err *e)
{
	struct err dropped = {0};

	if (external_check(g, e) < 0)
		return -e->no;
	for (int i = 0; i < g->size; i++)
		if (external_refuse(&g->ranks[i], &dropped) < 0)
			queue_drop_queued(&g->ranks[i], &dropped);
	return 0;
}

void
start_make_ranks(struct group *g)
{
	static const struct err changed = {
	    ECANCELED, "the size of the group has changed: submit it again"};

	if (rank_any_process(g))
		return; /* called again once the last process has ended */
	hosts_update(g);
	if (!rank_all_made(g))
		queue_drop_all(g, &changed);
	rank_make_all(g);
}

void
start_tell_preload(struct group *g, const struct host *h)
{
	bool named = host_is_named(h);
	struct err e;

	for (const char *line = zygotes_not_preloaded(h->agent, h->zygote); *line;) {
		int n = (int)strcspn(line, "\n");

		fail(&e, EREMOTEIO, "%.*s%s%s", MIN(n, 700), line, named ? " on host " : "",
		    named ? h->name : "");
		journal_fail(g, &e, "preload");
		journal_event(g, "preload-failed %s", e.text);
		line += n + (line[n] == '\n');
	}
}

int
start_prepare(struct group *g, struct err *e)
{
	g->life.start_error = (struct err){0};
	if (check_run_dir(g, e) == 0) {
		start_make_ranks(g);
		if (check_external(g, e) == 0 && hosts_start(g, e) == 0) {
			for (int i = 0; i < g->hosts.n; i++)
				if (g->hosts.list[i]->ranks)
					start_tell_preload(g, g->hosts.list[i]);
			return 0;
		}
	}
	g->life.start_error = *e;
	return -e->no;
}
