/* Copies a rank's namespace to other ranks. */
#include "group/clone.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/host.h"
#include "group/journal.h"
#include "group/rank.h"
#include "group/rank_set.h"
#include "group/recovery.h"
#include "group/renewed.h"
#include "group/task.h"
#include "object/pull.h"
#include "object/push.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char what[] = "clone";

/* What a clone needs while it lasts. */
struct clone {
	struct pull *pull; /* NULL: not running */
	clone_fn *fn;
	struct timer *interrupted;
	bool wrapped; /* all ranks need new reducers */
};

static void
stop_reading(struct clone *c)
{
	loop_timer_del(c->interrupted);
	c->interrupted = NULL;
	pull_free(c->pull);
	c->pull = NULL;
}

/* ---- the verb ---- */

/* Stores the ranks that are copied to. Returns 0 or -errno. */
static int
targets(const struct group *g, char **words, int n, int from, struct rank_set *to, struct err *e)
{
	struct rank_set own;

	if (n == 1 && strcmp(words[0], "all") == 0) {
		external_own(g, &own);
		*to = (struct rank_set){0};
		RANK_SET_EACH (rank, &own)
			if (rank != from)
				rank_set_add(to, rank);
	} else if (rank_set_parse(to, words, n, g->size, e) < 0) {
		return -e->no;
	}
	if (rank_set_empty(to))
		return fail(e, EINVAL, "clone %d all: the group has no other rank", from);
	if (rank_set_has(to, from))
		return fail(e, EINVAL, "clone: rank %d can't be copied to itself", from);
	return 0;
}

static void
clone_ended(struct task *w)
{
	struct clone *c = w->payload.clone;

	if (w->err.no)
		journal_fail(w->g, &w->err, what);
	if (c->wrapped)
		recovery_request(w->g, "cloned");
	stop_reading(c);
	free(c);
	task_free(w);
}

struct task *
clone_new(struct group *g, char **words, int n, struct err *e)
{
	struct rank_set first, ranks;
	struct task *w;
	int from;

	if (rank_set_parse(&first, words, 1, g->size, e) < 0)
		return NULL;
	from = rank_set_next(&first, 0);
	if (rank_set_count(&first) != 1)
		fail(e, EINVAL, "clone: want one rank to copy from, not '%.80s'", words[0]);
	else if (targets(g, words + 1, n - 1, from, &ranks, e) == 0)
		rank_set_add(&ranks, from);
	if (e->no)
		return NULL;
	RANK_SET_EACH (rank, &ranks)
		if (external_refuse(&g->ranks[rank], e) < 0)
			return NULL;
	if (g->life.state != G_READY && g->life.state != G_STARTING) {
		fail(e, ESRCH, "clone: no engine runs (echo start > %s/ctl)", g->name);
		return NULL;
	}
	w = task_new(g, TASK_CLONE, &ranks);
	for (int i = 0; i < w->n; i++)
		if (w->subtasks[i].k->number == from)
			w->payload.source = &w->subtasks[i];
	w->payload.name = xasprintf("%d", from);
	w->payload.clone = xcalloc(1, sizeof(*w->payload.clone));
	w->ended = clone_ended;
	return w;
}

/* ---- the bytes ---- */

/* A descriptor of the bytes that were read, for the ranks. Returns it, or -errno. */
static int
share(const struct source *s, struct err *e)
{
	struct push p;
	int fd;

	if (s->kind == SOURCE_FD && s->head_n == 0) {
		fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? fail_errno(e, "clone: no descriptor is left for its bytes") : fd;
	}
	if (push_open(&p, what, e) < 0)
		return -e->no;
	fd = push_write(&p, s->head, s->head_n, 0, what, e) < 0 ? -e->no : push_share(&p, what, e);
	push_close(&p);
	return fd;
}

static void
on_pulled(void *arg, const struct err *e)
{
	struct task *w = arg;
	struct clone *c = w->payload.clone;
	struct task_payload *p = &w->payload;
	struct err why = *e;
	int fd = why.no ? -1 : share(pull_source(c->pull), &why);

	if (fd >= 0) {
		p->fds = xcalloc(1, sizeof(*p->fds));
		p->sizes = xcalloc(1, sizeof(*p->sizes));
		p->fds[0] = fd;
		p->sizes[0] = pull_size(c->pull);
		p->fd_count = 1;
	}
	stop_reading(c);
	c->fn(w, &why);
}

void
clone_read(struct task *w, clone_fn *fn)
{
	static const struct var_view view = {.name = "clone", .reads = true};
	static const struct var_name name = {.name = "__main__", .view = &view};
	struct rank *k = w->payload.source->k;
	struct pull_rank *rank = xcalloc(1, sizeof(*rank));
	struct clone *c = w->payload.clone;

	*rank = (struct pull_rank){k->number, rank_agent(k), k->slot, host_local_pid(k), false};
	c->fn = fn;
	c->pull = pull_new(rank, 1, &name);
	pull_to_host(c->pull);
	pull_start(c->pull, on_pulled, w);
}

static void
on_interrupted(void *arg)
{
	struct task *w = arg;
	struct clone *c = w->payload.clone;
	struct err e;

	c->interrupted = NULL;
	stop_reading(c);
	fail(&e, EINTR, "interrupted before anything was copied");
	c->fn(w, &e);
}

void
clone_interrupt(struct task *w)
{
	struct clone *c = w->payload.clone;

	if (c->pull && !c->interrupted)
		c->interrupted = loop_timer(daemon_.loop, 0, on_interrupted, w);
}

/* ---- what the ranks have done ---- */

int
clone_taken(struct subtask *j, struct slice failures, uint32_t names, bool wrapped, struct err *e)
{
	struct task *w = j->w;
	struct buf b = {0};
	int failed = journal_add_lost(failures, &b);
	struct err why = {0};

	w->payload.clone->wrapped |= wrapped;
	if (names)
		renewed_forget(j->k);
	journal_event(w->g, "cloned rank=%d from=%s names=%u failed=%d bytes=%" PRIu64,
	    j->k->number, w->payload.name, names, failed, w->payload.sizes[0]);
	if (failed && names)
		fail(&why, EOPNOTSUPP, "rank %d has not: %s", j->k->number, b.p);
	else if (failed)
		fail(e, EOPNOTSUPP, "rank %d: nothing was copied: %s", j->k->number, b.p);
	if (why.no)
		journal_fail_rank(w->g, j->k->number, &why, what);
	buf_free(&b);
	return -e->no;
}
