/* The verbs of `ctl` that act: one row each. Those that say how a group shall be are in settings.c.
 */
#include "tree/ctl.h"
#include "base/words.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/rank_control.h"
#include "group/recovery.h"
#include "group/settings.h"
#include "group/task.h"
#include "host/agent.h"
#include "object/pull.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct call_ctx {
	struct group *g;
	char **word; /* word[0] is the verb */
	int n;	     /* words behind it */
	struct ctl_result *res;
	struct err *e;
};

struct verb {
	const char *name, *args, *help;
	int max;   /* words behind it */
	bool none; /* not here: for what other hosts need */
	int (*fn)(struct call_ctx *c);
};

static int
do_start(struct call_ctx *c)
{
	c->res->waits = true;
	return lifecycle_start(c->g, c->e);
}

static int
do_stop(struct call_ctx *c)
{
	c->res->waits = true;
	return lifecycle_stop(c->g, c->e);
}

static int
do_restart(struct call_ctx *c)
{
	c->res->waits = true;
	return lifecycle_restart(c->g, c->e);
}

/* The ranks that the words from word[first] on name, or all of our own if there are none, into
 * which[]; how many, or -errno. */
static int
ranks_from(struct call_ctx *c, int first, int *which)
{
	int n = c->n >= first ? c->n - first + 1 : external_own(c->g, which);
	long long v;

	for (int i = first; i <= c->n; i++) {
		int r = words_number(c->word[0], c->word[i], 0, c->g->size - 1, &v, c->e);

		if (r < 0)
			return r;
		if ((r = external_refuse(&c->g->ranks[v], c->e)) < 0)
			return r;
		which[i - first] = (int)v;
	}
	if (c->g->life.state != G_READY && c->g->life.state != G_STARTING)
		return fail(c->e, ESRCH, "%s: no engine runs (echo start > %s/ctl)", c->word[0],
		    c->g->name);
	return n;
}

static int
named_ranks(struct call_ctx *c, int *which)
{
	return ranks_from(c, 1, which);
}

static int
do_interrupt(struct call_ctx *c)
{
	int which[MAX_RANKS], n = named_ranks(c, which);

	for (int i = 0; i < n; i++) {
		struct job *j = queue_running(&c->g->ranks[which[i]]);
		bool before = false;

		for (int k = 0; j && k < i; k++) {
			const struct job *other = queue_running(&c->g->ranks[which[k]]);

			before |= other && other->w == j->w;
		}
		if (j && !before)
			work_interrupt(j->w);
		pull_interrupt(c->g->ranks[which[i]].slot);
	}
	return MIN(n, 0);
}

static int
do_kill(struct call_ctx *c)
{
	int which[MAX_RANKS], n = named_ranks(c, which);

	for (int i = 0; i < n; i++)
		recovery_kill(&c->g->ranks[which[i]], "rank-killed");
	return MIN(n, 0);
}

/* The number of a signal by its name, with or without SIG; or -EINVAL. */
static int
signal_number(const char *name, struct err *e)
{
	const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;

	for (int s = 1; s < NSIG; s++) {
		const char *abbrev = sigabbrev_np(s);

		if (abbrev && strcmp(abbrev, bare) == 0)
			return s;
	}
	return fail(e, EINVAL, "signal: no signal '%.80s' (want e.g. USR1)", name);
}

static int
do_signal(struct call_ctx *c)
{
	int which[MAX_RANKS], signo, n;

	if (c->n < 1)
		return fail(c->e, EINVAL, "signal: want NAME [RANK...], e.g. signal USR1");
	if ((signo = signal_number(c->word[1], c->e)) < 0)
		return signo;
	if ((n = ranks_from(c, 2, which)) < 0)
		return n;
	for (int i = 0; i < n; i++)
		rank_signal(&c->g->ranks[which[i]], signo);
	return 0;
}

static void
reset_ended(struct work *w)
{
	if (w->err.no)
		group_fail(w->g, &w->err, "reset");
	work_free(w);
}

/* The process group anew, namespaces kept. */
static int
do_recover(struct call_ctx *c)
{
	int all[MAX_RANKS], n = named_ranks(c, all);

	if (n < 0)
		return n;
	c->res->waits = true;
	recovery_request(c->g, "asked-for");
	recovery_begin(c->g);
	return 0;
}

static void
free_ended(struct work *w)
{
	if (w->err.no)
		group_fail(w->g, &w->err, "free");
	for (int i = 0; i < w->n; i++)
		if (*w->jobs[i].value)
			group_event(
			    w->g, "freed rank=%d %s", w->jobs[i].k->number, w->jobs[i].value);
	work_free(w);
}

/* A work for all ranks that the close of ctl waits for. */
static int
submit_for_all(struct call_ctx *c, enum work_kind kind, void (*ended)(struct work *w))
{
	int all[MAX_RANKS], n = named_ranks(c, all);

	if (n < 0)
		return n;
	c->res->work = work_new(c->g, kind, all, n);
	c->res->work->ended = ended;
	c->res->waits = true;
	work_submit(c->res->work);
	return 0;
}

static int
do_reset(struct call_ctx *c)
{
	return submit_for_all(c, WORK_RESET, reset_ended);
}

static int
do_free(struct call_ctx *c)
{
	return submit_for_all(c, WORK_FREE, free_ended);
}

static int
do_cancel(struct call_ctx *c)
{
	struct err e = {0};

	fail(&e, ECANCELED, "dropped from the queue by cancel");
	for (int i = 0; i < c->g->size; i++)
		queue_drop_queued(&c->g->ranks[i], &e);
	return 0;
}

static int
do_later(struct call_ctx *c)
{
	return fail(c->e, EOPNOTSUPP,
	    "%s: this ddipfs serves the local host only and has no such verb", c->word[0]);
}

/* clang-format off */
static const struct verb verbs[] = {
    {"start", "", "start the ranks", 0, false, do_start},
    {"stop", "", "end them", 0, false, do_stop},
    {"restart", "", "stop and start", 0, false, do_restart},
    {"interrupt", "[RANK...]", "interrupt the cells that run there, and reads of variables", WORDS_MAX, false, do_interrupt},
    {"kill", "[RANK...]", "SIGKILL; new ranks take their places", WORDS_MAX, false, do_kill},
    {"signal", "NAME [RANK...]", "send a signal to the ranks' processes", WORDS_MAX, false, do_signal},
    {"reset", "", "empty the namespaces; the processes stay", 0, false, do_reset},
    {"cancel", "", "drop what is queued", 0, false, do_cancel},
    {"recover", "", "make the process group anew; the namespaces stay", 0, false, do_recover},
    {"free", "", "collect garbage, empty the GPU cache; events tell what came free", 0, false, do_free},
    {"hosts", "", "other hosts", WORDS_MAX, true, do_later},
    {"launcher", "", "how to reach them", WORDS_MAX, true, do_later},
};

/* clang-format on */

static const struct verb *
find_verb(const char *word, struct err *e)
{
	struct buf all = {0};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (strcmp(verbs[i].name, word) == 0)
			return &verbs[i];
	settings_names(&all);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!verbs[i].none)
			buf_addf(&all, " %s", verbs[i].name);
	fail(e, EINVAL, "no verb '%.80s'; want one of%s", word, all.p);
	buf_free(&all);
	return NULL;
}

int
ctl_line(struct group *g, const char *line, struct ctl_result *res, struct err *e)
{
	char *copy = xstrdup(line), *words[WORDS_MAX];
	struct call_ctx c = {.g = g, .word = words, .res = res, .e = e};
	const struct setting *set;
	const struct verb *v;
	int n = words_split(copy, words, WORDS_MAX, e), r = MIN(n, 0);

	*res = (struct ctl_result){0};
	c.n = n - 1;
	if (n <= 0)
		goto out;
	set = settings_find(words[0]);
	if (set)
		r = settings_set(set, g, words, c.n, e);
	else if (!(v = find_verb(words[0], e)))
		r = -EINVAL;
	else if (c.n > v->max)
		r = fail(e, EINVAL, "usage: %s%s%s", v->name, *v->args ? " " : "", v->args);
	else
		r = v->fn(&c);
out:
	free(copy);
	return r;
}

void
ctl_help(struct buf *out)
{
	settings_help(out);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!verbs[i].none)
			buf_addf(
			    out, "  %-9s %-20s %s\n", verbs[i].name, verbs[i].args, verbs[i].help);
}

static int
rank_interrupt_verb(struct rank *k, char **word, struct err *e)
{
	struct job *j = queue_running(k);

	if (j)
		work_interrupt(j->w);
	pull_interrupt(k->slot);
	return 0;
}

static int
rank_kill_verb(struct rank *k, char **word, struct err *e)
{
	recovery_kill(k, "rank-killed");
	return 0;
}

static int
rank_signal_verb(struct rank *k, char **word, struct err *e)
{
	int signo = signal_number(word[1], e);

	if (signo > 0)
		rank_signal(k, signo);
	return MIN(signo, 0);
}

static int
rank_eof_verb(struct rank *k, char **word, struct err *e)
{
	agent_send(k->g->agent, Nstdin, 0, k->slot, 0, -1, ((struct slice){"", 0}));
	return 0;
}

static const struct {
	const char *name;
	int args;
	int (*fn)(struct rank *k, char **word, struct err *e);
} rank_verbs[] = {
    {"interrupt", 0, rank_interrupt_verb},
    {"kill", 0, rank_kill_verb},
    {"signal", 1, rank_signal_verb},
    {"eof", 0, rank_eof_verb},
};

int
ctl_rank_line(struct rank *k, const char *line, struct err *e)
{
	char *copy = xstrdup(line), *words[WORDS_MAX];
	int n = words_split(copy, words, WORDS_MAX, e), r = MIN(n, 0);
	size_t i = 0;

	if (n <= 0)
		goto out;
	while (i < ARRAY_LEN(rank_verbs) &&
	       (n != rank_verbs[i].args + 1 || strcmp(rank_verbs[i].name, words[0]) != 0))
		i++;
	if (i == ARRAY_LEN(rank_verbs))
		r = fail(
		    e, EINVAL, "want interrupt, kill, signal NAME or eof, not '%.80s'", words[0]);
	else if ((r = external_refuse(k, e)) == 0 && k->slot == NO_SLOT)
		r = fail(
		    e, ESRCH, "rank %d has no engine (echo start > %s/ctl)", k->number, k->g->name);
	else if (r == 0)
		r = rank_verbs[i].fn(k, words, e);
out:
	free(copy);
	return r;
}
