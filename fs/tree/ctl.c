/*
 * The action verbs of `ctl`, one row each: those of a group, of rankK/ctl and of cells/N/ctl. The
 * verbs that set something are in group/settings.c.
 */
#include "tree/ctl.h"
#include "base/verb.h"
#include "group/cell.h"
#include "group/clone.h"
#include "group/external.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/processes.h"
#include "group/queue.h"
#include "group/queue_list.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/recovery.h"
#include "group/save.h"
#include "group/selftest.h"
#include "group/preempt.h"
#include "group/settings.h"
#include "group/task.h"
#include "host/agent.h"
#include "object/pull.h"
#include "signal_name.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The group that the verb acts on. */
static struct group *
group_of(const struct verb_call *c)
{
	return c->subject;
}

/* Makes the close of `ctl` wait for the outcome. */
static struct ctl_result *
waits(const struct verb_call *c)
{
	struct ctl_result *res = c->result;

	res->waits = WAITS_FOR_STATE;
	return res;
}

static int
do_start(struct verb_call *c)
{
	waits(c)->waits = WAITS_FOR_START;
	return lifecycle_start(group_of(c), c->e);
}

static int
do_stop(struct verb_call *c)
{
	waits(c);
	return lifecycle_stop(group_of(c), c->e);
}

static int
do_restart(struct verb_call *c)
{
	waits(c)->waits = WAITS_FOR_START;
	return lifecycle_restart(group_of(c), c->e);
}

/* Stores the ranks named by the words from word[first] on, or all of the group's own ranks if there
 * are no such words. Returns 0, or -errno with c->e set. */
static int
ranks_from(struct verb_call *c, int first, struct rank_set *which)
{
	struct group *g = group_of(c);

	if (c->n < first)
		external_own(g, which);
	else if (rank_set_parse(which, c->word + first, c->n - first + 1, g->size, c->e) < 0)
		return -c->e->no;
	RANK_SET_EACH (rank, which)
		if (external_refuse(&g->ranks[rank], c->e) < 0)
			return -c->e->no;
	if (g->life.state != G_READY && g->life.state != G_STARTING)
		return fail(
		    c->e, ESRCH, "%s: no engine runs (echo start > %s/ctl)", c->word[0], g->name);
	return 0;
}

static int
named_ranks(struct verb_call *c, struct rank_set *which)
{
	return ranks_from(c, 1, which);
}

static void
interrupt_pulls(const struct rank *k)
{
	pull_interrupt(rank_agent(k), k->slot);
}

static int
do_interrupt(struct verb_call *c)
{
	struct rank_set which;
	uint64_t now = now_ns();

	if (named_ranks(c, &which) < 0)
		return -c->e->no;
	RANK_SET_EACH (rank, &which) {
		struct rank *k = &group_of(c)->ranks[rank];
		struct subtask *j = queue_outermost(k);

		if (j && j->w->escalation.asked != now) {
			j->w->escalation.asked = now;
			task_interrupt(j->w);
		}
		interrupt_pulls(k);
	}
	return 0;
}

static int
do_preempt(struct verb_call *c)
{
	preempt_cells(group_of(c), 0, "-");
	return 0;
}

static int
do_kill(struct verb_call *c)
{
	struct rank_set which;

	if (named_ranks(c, &which) < 0)
		return -c->e->no;
	RANK_SET_EACH (rank, &which)
		recovery_kill(&group_of(c)->ranks[rank], "rank-killed");
	return 0;
}

/* The number of a signal, given its name with or without SIG; or -EINVAL. */
static int
signal_number(const char *name, struct err *e)
{
	int signo = signal_name_find(name);

	if (signo)
		return signo;
	return fail(e, EINVAL, "signal: no signal '%.80s' (want e.g. USR1)", name);
}

static int
do_signal(struct verb_call *c)
{
	int signo = signal_number(c->word[1], c->e);
	struct rank_set which;

	if (signo < 0 || ranks_from(c, 2, &which) < 0)
		return -c->e->no;
	RANK_SET_EACH (rank, &which)
		rank_signal(&group_of(c)->ranks[rank], signo);
	return 0;
}

static void
reset_ended(struct task *w)
{
	if (w->err.no)
		journal_fail(w->g, &w->err, "reset");
	task_free(w);
}

/* Rebuilds the process group; the namespaces are kept. */
static int
do_recover(struct verb_call *c)
{
	struct rank_set all;

	if (named_ranks(c, &all) < 0)
		return -c->e->no;
	waits(c)->waits = group_of(c)->life.state == G_READY ? WAITS_FOR_START : WAITS_FOR_STATE;
	if (group_of(c)->hosts.lacking) {
		hosts_forgive(group_of(c));
		processes_place(group_of(c));
		return 0;
	}
	recovery_request(group_of(c), "asked-for");
	recovery_begin(group_of(c));
	return 0;
}

static void
free_ended(struct task *w)
{
	if (w->err.no)
		journal_fail(w->g, &w->err, "free");
	for (int i = 0; i < w->n; i++)
		if (*w->subtasks[i].value)
			journal_event(w->g, "freed rank=%d %s", w->subtasks[i].k->number,
			    w->subtasks[i].value);
	task_free(w);
}

/* Submits a task for all ranks; the close of ctl waits for it. */
static int
submit_for_all(struct verb_call *c, enum task_kind kind, void (*ended)(struct task *w))
{
	struct rank_set all;
	struct task *w;

	if (named_ranks(c, &all) < 0 || lifecycle_accepts(group_of(c), c->e) < 0)
		return -c->e->no;
	w = task_new(group_of(c), kind, &all);
	w->ended = ended;
	waits(c)->task = w;
	task_submit(w);
	return 0;
}

static int
do_reset(struct verb_call *c)
{
	return submit_for_all(c, TASK_RESET, reset_ended);
}

static int
do_free(struct verb_call *c)
{
	return submit_for_all(c, TASK_FREE, free_ended);
}

static int
do_selftest(struct verb_call *c)
{
	struct rank_set all;
	struct task *w = NULL;

	if (ranks_from(c, c->n + 1, &all) == 0 && lifecycle_accepts(group_of(c), c->e) == 0)
		w = selftest_new(group_of(c), c->word + 1, c->n, c->e);
	if (!w)
		return -c->e->no;
	waits(c)->task = w;
	task_submit(w);
	return 0;
}

static int
do_clone(struct verb_call *c)
{
	struct ctl_result *res;
	struct task *w = NULL;

	if (lifecycle_accepts(group_of(c), c->e) == 0)
		w = clone_new(group_of(c), c->word + 1, c->n, c->e);
	if (!w)
		return -c->e->no;
	res = waits(c);
	res->waits = WAITS_FOR_START; /* its ranks may have to rejoin */
	res->task = w;
	task_submit(w);
	return 0;
}

static int
save_or_load(struct verb_call *c)
{
	struct cell *cell = save_submit(group_of(c), c->word[0], c->word[1], c->e);

	if (!cell)
		return -c->e->no;
	waits(c)->task = cell->w;
	return 0;
}

static int
do_cancel(struct verb_call *c)
{
	struct err e = {0};

	if (c->n)
		return queue_list_cancel(group_of(c), c->word + 1, c->n, c->e);
	fail(&e, ECANCELED, "dropped from the queue by cancel");
	queue_drop_all_queued(group_of(c), &e);
	return 0;
}

/* clang-format off */
static const struct verb verbs[] = {
    {"start", "", "start the ranks", 0, 0, 0, do_start, NULL},
    {"stop", "", "end them", 0, 0, 0, do_stop, NULL},
    {"restart", "", "stop and start", 0, 0, 0, do_restart, NULL},
    {"interrupt", "[RANKS...]", "interrupt running cells, and reads of variables", 0, WORDS_MAX, 0, do_interrupt, NULL},
    {"preempt", "", "raise ddip.Preempted in all running cells, as on_preempt does", 0, 0, 0, do_preempt, NULL},
    {"kill", "[RANKS...]", "SIGKILL; new ranks take their places", 0, WORDS_MAX, 0, do_kill, NULL},
    {"signal", "NAME [RANKS...]", "send a signal to the ranks' processes", 1, WORDS_MAX, 0, do_signal, NULL},
    {"reset", "", "empty the namespaces; the processes stay", 0, 0, 0, do_reset, NULL},
    {"cancel", "[N...]", "drop what is queued, or only these: numbers as in queue", 0, WORDS_MAX, 0, do_cancel, NULL},
    {"clone", "FROM TO...|all", "copy a rank's variables to others; error says what could not be", 2, WORDS_MAX, 0, do_clone, NULL},
    {"save", "DIR", "all ranks' variables to a directory, at one step; error says what could not be", 1, 1, 0, save_or_load, NULL},
    {"load", "DIR", "such a directory, into the objects that are there where they fit", 1, 1, 0, save_or_load, NULL},
    {"recover", "", "rebuild the process group; the namespaces stay", 0, 0, 0, do_recover, NULL},
    {"free", "", "collect garbage, empty the GPU cache; events reports the freed memory", 0, 0, 0, do_free, NULL},
    {"selftest", "[SIZES...]", "measure the collectives and check their results: see selftest", 0, WORDS_MAX, 0, do_selftest, NULL},
};
/* clang-format on */

static const struct verb_table group_table = {verbs, ARRAY_LEN(verbs), NULL};

int
ctl_line(struct group *g, const char *line, struct ctl_result *res, struct err *e)
{
	static const struct verb_table *const tables[] = {&settings_table, &group_table, NULL};

	*res = (struct ctl_result){0};
	return verb_line(tables, line, g, res, e);
}

void
ctl_help(struct buf *out)
{
	verb_help(&settings_table, out);
	verb_help(&group_table, out);
}

/* ---- rankK/ctl ---- */

static int
interrupt_rank(struct verb_call *c)
{
	struct rank *k = c->subject;
	struct subtask *j = queue_outermost(k);

	if (j)
		task_interrupt(j->w);
	interrupt_pulls(k);
	return 0;
}

static int
kill_rank(struct verb_call *c)
{
	recovery_kill(c->subject, "rank-killed");
	return 0;
}

static int
signal_one_rank(struct verb_call *c)
{
	int signo = signal_number(c->word[1], c->e);

	if (signo > 0)
		rank_signal(c->subject, signo);
	return MIN(signo, 0);
}

static int
end_stdin(struct verb_call *c)
{
	struct rank *k = c->subject;

	agent_send(rank_agent(k), Nstdin, 0, k->slot, 0, -1, ((struct slice){"", 0}));
	return 0;
}

static const struct verb rank_verbs[] = {
    {"interrupt", "", "interrupt what the rank runs", 0, 0, 0, interrupt_rank, NULL},
    {"kill", "", "SIGKILL; a new rank takes its place", 0, 0, 0, kill_rank, NULL},
    {"signal", "NAME", "send a signal to its processes", 1, 1, 0, signal_one_rank, NULL},
    {"eof", "", "end its standard input", 0, 0, 0, end_stdin, NULL},
};

static int
check_rank(const struct verb *v, const struct verb_call *c)
{
	struct rank *k = c->subject;

	if (external_refuse(k, c->e) < 0)
		return -c->e->no;
	if (k->slot == NO_SLOT)
		return fail(c->e, ESRCH, "rank %d has no engine (echo start > %s/ctl)", k->number,
		    k->g->name);
	return 0;
}

int
ctl_rank_line(struct rank *k, const char *line, struct err *e)
{
	static const struct verb_table table = {rank_verbs, ARRAY_LEN(rank_verbs), check_rank};
	static const struct verb_table *const tables[] = {&table, NULL};

	return verb_line(tables, line, k, NULL, e);
}

/* ---- cells/N/ctl ---- */

static int
interrupt_cell(struct verb_call *c)
{
	struct cell *cell = c->subject;

	task_interrupt(cell->w);
	return 0;
}

int
ctl_cell_line(struct cell *c, const char *line, struct err *e)
{
	static const struct verb verb = {"interrupt", "", "stop this cell; drop it if it is queued",
	    0, 0, 0, interrupt_cell, NULL};
	static const struct verb_table table = {&verb, 1, NULL};
	static const struct verb_table *const tables[] = {&table, NULL};

	return verb_line(tables, line, c, NULL, e);
}
