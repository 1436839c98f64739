/* The texts of small files, generated when they are opened. */
#include "tree/text.h"
#include "base/daemon.h"
#include "base/plain.h"
#include "group/cell.h"
#include "group/host.h"
#include "group/queue_list.h"
#include "group/recovery.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/rank.h"
#include "group/report.h"
#include "group/selftest.h"
#include "group/settings.h"
#include "group/watch.h"
#include "group/task.h"
#include "host/agent.h"
#include "tree/gpu_file.h"
#include "host/zygotes.h"
#include "object/varname.h"
#include "tree/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int
text_version(const struct place *at, struct buf *out, struct err *e)
{
	buf_addf(out, "ddipfs %s wire %d\n", DDIP_VERSION, WIRE_VERSION);
	return 0;
}

int
text_skill(const struct place *at, struct buf *out, struct err *e)
{
	buf_adds(out, skill_text);
	return 0;
}

/* What one needs first. */
static const char first_page[] =
    "ddipfs: a PyTorch DDP group as files. In the directory of a group, such as group/:\n"
    "  Run code on all ranks: write it to cell. The write returns when the code has ended; names "
    "stay.\n"
    "  If the writer dies, the code is interrupted. What is written meanwhile is queued.\n"
    "  Run a file with arguments, as torchrun does: ddip run [-d] FILE ARG…; -d does not wait for "
    "it.\n"
    "  ddip has these operations as commands: ddip help, man ddip, man ddipfs.4. For agents: "
    "SKILL.md.\n"
    "  What it prints: cells/N/rankK/stdout, or rankK/stdout for all cells; cells/last is the last "
    "cell.\n"
    "  Global names: rankK/vars/NAME. Names in functions that run, as in main(): "
    "rankK/locals/NAME.\n"
    "  Over all ranks: vars/NAME.mean, locals/NAME.gather. Formats: NAME.json, NAME.npy.\n"
    "  What goes on, or went wrong: ddip report, or cells/N/report: why it failed or hangs, who is "
    "slow, where,\n"
    "  what main() holds, what to read next. error has each errno's text, rankK/stack each frame.\n"
    "  End it: ddip interrupt, or echo interrupt > ctl; variables stay. New ranks: echo restart > "
    "ctl.\n"
    "  Wait, then see: timeout 60 ddip wait -u ended,failed,stalled,quiet=20 N; ddip report N. "
    "State: status, ranks.\n"
    "  What waits, and whose it is: queue. Take it back: ddip cancel N, or echo cancel N > ctl.\n"
    "  Everything else is in the table below.\n";

/* The name space as a table, generated from its rows. */
int
text_readme(const struct place *at, struct buf *out, struct err *e)
{
	buf_adds(out, first_page);
	buf_adds(out, "\nFiles. G: a group, K: a rank, N: a cell's number.\n");
	for (size_t i = 0; i < name_count; i++) {
		const struct row *row = &name_rows[i];

		if (!row->reading && !row->writing)
			continue;
		buf_addf(out, "%-30s %04o  %s%s%s%s\n", *row->path ? row->path : ".",
		    row->mode & 07777, row->reading ? row->reading : "",
		    row->reading && row->writing ? "; " : "", row->writing ? "written: " : "",
		    row->writing ? row->writing : "");
	}
	buf_adds(out,
	    "\nA write that fails returns an errno at close or fsync. Where a shell or Python's "
	    "open().write()\nignores that, a line on standard error tells what failed. G/error has "
	    "the text of each failure.\n");
	buf_adds(out, "\nNAME is VARIABLE[.OP][.VIEW]. Views:\n");
	for (size_t i = 0; i < var_view_count; i++)
		buf_addf(out, "  %-12s %s%s\n", *var_views[i].name ? var_views[i].name : "(none)",
		    var_views[i].help, var_views[i].writes ? "" : " (reading)");
	buf_adds(out, "OPs over all ranks, in G/vars and G/locals:\n");
	for (size_t i = 0; i < var_op_count; i++)
		buf_addf(out, "  %-12s %s\n", var_ops[i].name, var_ops[i].help);
	buf_adds(
	    out, "Verbs of ctl, one a line (* a setting that a started group refuses: EBUSY):\n");
	ctl_help(out);
	buf_adds(out, "\nThe life of a group: state, event, next state.\n");
	lifecycle_print(out);
	buf_adds(out, "The process group of a started group, likewise.\n");
	recovery_print(out);
	return 0;
}

int
text_ctl(const struct place *at, struct buf *out, struct err *e)
{
	settings_print(at->g, out);
	return 0;
}

/* The number of hosts that have ranks, and what is lacking. Nothing if this machine is the only
 * host. */
static void
add_hosts(const struct group *g, struct record *out)
{
	struct buf lacking = {0};
	int used = 0, lost = 0;

	for (int i = 0; i < g->hosts.n; i++) {
		used += g->hosts.list[i]->ranks > 0;
		lost += g->hosts.list[i]->lost;
	}
	if (hosts_named(g)) {
		record_number(out, "hosts", g->hosts.n);
		record_number(out, "hosts_used", used);
		record_number(out, "hosts_lost", lost);
	}
	if (g->hosts.lacking) {
		hosts_lacking(g, &lacking);
		record_text(out, "lacks", lacking.p);
	}
	buf_free(&lacking);
}

/* The step of the first rank of the running cell, if it has made any. */
static void
add_step(const struct group *g, struct record *out)
{
	uint32_t step = g->history.step.number;
	const char *clock = task_clock(g->history.step.clock);

	if (!step)
		return;
	if (out->form == RECORD_JSON) {
		record_number(out, "step", step);
		record_text(out, "clock", clock);
	} else {
		buf_addf(out->out, "step %u clock=%s\n", step, clock);
	}
}

/* "watch 18 stopped at step 214" */
static void
add_watch(const struct group *g, struct record *out)
{
	const struct cell *c = watch_of(g);
	struct buf b = {0};

	if (!c)
		return;
	buf_adds(&b, watch_state(c));
	if (c->steered.stopped)
		buf_addf(&b, " at step %u", c->steered.step);
	if (out->form == RECORD_JSON) {
		record_number(out, "watch", c->number);
		record_text(out, "watch_state", b.p);
	} else {
		buf_addf(out->out, "watch %d %s\n", c->number, b.p);
	}
	buf_free(&b);
}

static void
print_status(struct group *g, struct record *out)
{
	const struct host *first = g->hosts.n ? g->hosts.list[0] : NULL;
	static const char *const names[] = {
	    [NAMES_EMPTY] = "empty", [NAMES_PROGRAM] = "program", [NAMES_CELLS] = "cells"};
	int running = 0;
	const char *failed = NULL, *phases;

	for (int i = 0; i < g->size && !running; i++)
		running = g->ranks[i].cell;
	record_begin(out, NULL);
	record_text(out, "state", lifecycle_state_name(g));
	record_number(out, "size", g->size);
	record_number(out, "cell", running ? running : g->history.last);
	record_number(out, "queued", g->queued);
	if (running && running == g->history.step.cell)
		add_step(g, out);
	add_watch(g, out);
	record_text(out, "last", *g->history.last_result ? g->history.last_result : NULL);
	record_number(out, "generation", g->recovery.generation);
	record_text(out, "namespace", names[g->history.names]);
	add_hosts(g, out);
	record_real(out, "since", g->journal.changed, 3);
	record_text(out, "spool", g->run_dir);
	for (int i = 0; i < g->life.phase_count; i++)
		record_real(out, g->life.phases[i].name, g->life.phases[i].ms, 1);
	if (first && first->agent && first->agent->conn) {
		phases = zygotes_phases(first->agent, first->zygote, &failed);
		record_lines(out, "zygote_", phases);
	}
	record_lines(out, "", g->life.patches.n ? g->life.patches.p : "");
	record_end(out);
}

int
text_status(const struct place *at, struct buf *out, struct err *e)
{
	print_status(at->g, &(struct record){.out = out, .form = RECORD_LINES});
	return 0;
}

int
text_status_json(const struct place *at, struct buf *out, struct err *e)
{
	print_status(at->g, &(struct record){.out = out, .form = RECORD_JSON});
	return 0;
}

int
text_selftest(const struct place *at, struct buf *out, struct err *e)
{
	selftest_print(at->g, out);
	return 0;
}

int
text_queue(const struct place *at, struct buf *out, struct err *e)
{
	queue_list(at->g, &(struct record){.out = out, .form = RECORD_WORDS});
	return 0;
}

int
text_queue_json(const struct place *at, struct buf *out, struct err *e)
{
	queue_list(at->g, &(struct record){.out = out, .form = RECORD_JSON});
	return 0;
}

/* NULL for "-", which stands for what is not known. */
static const char *
known(const char *word)
{
	return strcmp(word, "-") == 0 ? NULL : word;
}

/* Up to this group size, the memory of local processes is looked up: 10 us each, while other
 * requests wait. */
enum { RESIDENT_MAX = 512 };

/* The resident memory of a process, in bytes. */
static unsigned long long
resident(pid_t pid)
{
	char path[32];
	struct buf b = {0};
	unsigned long long size, rss = 0;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	if (read_file(path, &b) == 0 && sscanf(b.p, "%llu %llu", &size, &rss) == 2)
		rss *= (unsigned long long)sysconf(_SC_PAGESIZE);
	buf_free(&b);
	return rss;
}

static void
add_resident(const struct rank *k, bool looked_at, struct record *out)
{
	if (k->pid && (!looked_at || !host_local_pid(k)))
		record_none(out, "rss_bytes");
	else
		record_number(out, "rss_bytes", k->pid ? (long long)resident(k->pid) : 0);
}

static void
print_ranks(struct group *g, struct record *out)
{
	record_begin_list(out, NULL);
	for (int i = 0; i < g->size; i++) {
		struct rank *k = &g->ranks[i];

		record_begin(out, NULL);
		record_number(out, "rank", i);
		record_text(out, "state", rank_state_name(k));
		if (k->pid)
			record_number(out, "pid", k->pid);
		else
			record_none(out, "pid");
		record_text(out, "host", known(host_label(host_of_rank(k))));
		gpu_file_rank_words(k, out);
		add_resident(k, g->size <= RESIDENT_MAX, out);
		record_number(out, "cell", k->cell);
		if (k->end.replaced)
			record_number(out, "new_since", k->end.cell);
		record_end(out);
	}
	record_end_list(out);
}

int
text_ranks(const struct place *at, struct buf *out, struct err *e)
{
	print_ranks(at->g, &(struct record){.out = out, .form = RECORD_WORDS});
	return 0;
}

int
text_ranks_json(const struct place *at, struct buf *out, struct err *e)
{
	print_ranks(at->g, &(struct record){.out = out, .form = RECORD_JSON});
	return 0;
}

int
text_rank_status(const struct place *at, struct buf *out, struct err *e)
{
	struct rank *k = place_rank(at, e);

	if (!k)
		return -e->no;
	buf_addf(out, "state %s\npid %d\nhost %s\n", rank_state_name(k), (int)k->pid,
	    host_label(host_of_rank(k)));
	gpu_file_rank_lines(k, out);
	buf_addf(out, "cell %d\nsince %.3f\nqueued %d\n", k->cell, k->since,
	    !TAILQ_EMPTY(&k->queue) && !queue_running(k));
	if (k->input.waits && k->input.waits != INPUT_DEBUGGER)
		buf_addf(out, "input %s\n", k->input.waits == INPUT_PASSWORD ? "password" : "text");
	if (*k->spawn_method)
		buf_addf(out, "spawn_method %s\n", k->spawn_method);
	if (k->end.how)
		buf_addf(out, "exit %s\n", k->end.how);
	return 0;
}

/* Adds a text of several lines as one entry: lines after the first are indented. */
static void
add_indented(const char *s, struct buf *out)
{
	for (; *s; s++) {
		buf_addc(out, *s);
		if (*s == '\n' && s[1])
			buf_addc(out, '\t');
	}
	if (out->n && out->p[out->n - 1] == '\n')
		out->n--;
}

int
text_error(const struct place *at, struct buf *out, struct err *e)
{
	struct group *g = at->g;
	struct buf b = {0};

	for (int i = 0; i < g->journal.error_count; i++) {
		const struct failure *f = &g->journal.errors[i];

		buf_addf(&b, "%llu %.6f %s ", (unsigned long long)f->seq, f->time, err_name(f->no));
		add_indented(f->what, &b);
		buf_adds(&b, ": ");
		add_indented(f->text, &b);
		if (f->times > 1)
			buf_addf(&b, " (%u times)", f->times);
		buf_addc(&b, '\n');
	}
	plain_add(out, (struct slice){b.p, b.n});
	buf_free(&b);
	return 0;
}

static void
add_plain(struct record *r, const char *key, const char *text)
{
	struct buf b = {0};

	plain_add(&b, slice_text(text));
	record_text(r, key, b.n ? b.p : "");
	buf_free(&b);
}

int
text_error_json(const struct place *at, struct buf *out, struct err *e)
{
	const struct group_journal *j = &at->g->journal;
	struct record r = {.out = out, .form = RECORD_JSON};

	record_begin_list(&r, NULL);
	for (int i = 0; i < j->error_count; i++) {
		const struct failure *f = &j->errors[i];

		record_begin(&r, NULL);
		record_number(&r, "number", (long long)f->seq);
		record_real(&r, "time", f->time, 6);
		record_text(&r, "errno", err_name(f->no));
		if (f->rank >= 0)
			record_number(&r, "rank", f->rank);
		else
			record_none(&r, "rank");
		add_plain(&r, "what", f->what);
		add_plain(&r, "text", f->text);
		record_number(&r, "times", f->times);
		record_end(&r);
	}
	record_end_list(&r);
	return 0;
}

int
text_last_result(const struct place *at, struct buf *out, struct err *e)
{
	buf_adds(out, "cells/last/result");
	return 0;
}

int
text_last_traceback(const struct place *at, struct buf *out, struct err *e)
{
	buf_adds(out, "cells/last/traceback");
	return 0;
}

int
text_last_cell(const struct place *at, struct buf *out, struct err *e)
{
	buf_addf(out, "%d", at->g->history.last);
	return 0;
}

int
text_cell_source(const struct place *at, struct buf *out, struct err *e)
{
	buf_add(out, at->cell->source, at->cell->source_len);
	return 0;
}

int
text_cell_status(const struct place *at, struct buf *out, struct err *e)
{
	cell_status(at->cell, &(struct record){.out = out, .form = RECORD_LINES});
	return 0;
}

int
text_cell_status_json(const struct place *at, struct buf *out, struct err *e)
{
	cell_status(at->cell, &(struct record){.out = out, .form = RECORD_JSON});
	return 0;
}

int
text_cell_result(const struct place *at, struct buf *out, struct err *e)
{
	cell_result(at->cell, out);
	return 0;
}

int
text_cell_error(const struct place *at, struct buf *out, struct err *e)
{
	cell_error(at->cell, &(struct record){.out = out, .form = RECORD_LINES});
	return 0;
}

int
text_cell_error_json(const struct place *at, struct buf *out, struct err *e)
{
	cell_error(at->cell, &(struct record){.out = out, .form = RECORD_JSON});
	return 0;
}

int
text_cell_traceback(const struct place *at, struct buf *out, struct err *e)
{
	cell_traceback(at->cell, out);
	return 0;
}

int
text_report(const struct place *at, struct buf *out, struct err *e)
{
	report_print(at->cell, NULL, false, out);
	return 0;
}

int
text_report_json(const struct place *at, struct buf *out, struct err *e)
{
	report_print(at->cell, NULL, true, out);
	return 0;
}

int
text_subtask_result(const struct place *at, struct buf *out, struct err *e)
{
	const struct subtask *j = cell_subtask(at->cell, at->rank);

	if (j && *j->value)
		buf_addf(out, "%s\n", j->value);
	return 0;
}

int
text_subtask_traceback(const struct place *at, struct buf *out, struct err *e)
{
	const struct subtask *j = cell_subtask(at->cell, at->rank);

	if (j)
		buf_adds(out, j->traceback);
	return 0;
}

int
text_subtask_status(const struct place *at, struct buf *out, struct err *e)
{
	const struct subtask *j = cell_subtask(at->cell, at->rank);
	const char *state = "queued";

	if (!j)
		return fail(e, ENOENT, "the cell did not run on this rank");
	if (j->state == SUBTASK_DONE)
		state = j->no ? "failed" : "ok";
	else if (j->state != SUBTASK_QUEUED)
		state = "running";
	buf_addf(out, "state %s\n", state);
	if (j->no)
		buf_addf(out, "errno %s\nerror %s\n", err_name(j->no), j->error);
	if (j->t0 > 0)
		buf_addf(out, "began %.6f\n", j->t0);
	if (j->t1 > 0)
		buf_addf(out, "ended %.6f\n", j->t1);
	return 0;
}

/* ---- error: truncating clears it ---- */

static int
error_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	if (size != 0)
		return fail(e, EINVAL, "`error` can only be cleared as a whole (: > error)");
	journal_clear(at->g);
	return 0;
}

static ssize_t
error_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return fail(e, EINVAL, "`error` can only be cleared (: > error)");
}

const struct file_ops text_error_ops = {.write = error_write, .truncate = error_truncate};
