/*
 * THE NAME SPACE: one row per file. Lookup, readdir, stat, permissions and the README in the mount
 * are all derived from this table. A part of a path in capitals stands for many names: G a group, K
 * a rank, N a cell, NAME a variable, LIST ranks.
 */
#include "group/cell.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/rank_set.h"
#include "group/registry.h"
#include "tree/gpu_file.h"
#include "tree/hosts_file.h"
#include "tree/cell_file.h"
#include "tree/cell_stream.h"
#include "tree/ctl_file.h"
#include "tree/env_file.h"
#include "tree/event_file.h"
#include "tree/figure_file.h"
#include "tree/frame_file.h"
#include "tree/inside_dir.h"
#include "tree/output_file.h"
#include "tree/rank_gpu_file.h"
#include "tree/running_names.h"
#include "tree/stack_file.h"
#include "tree/staged_file.h"
#include "tree/stall_file.h"
#include "tree/stdin_file.h"
#include "tree/steps_file.h"
#include "tree/stream_file.h"
#include "tree/text.h"
#include "tree/report_file.h"
#include "tree/tree.h"
#include "tree/var_file.h"
#include "tree/var_names.h"
#include "tree/var_text.h"
#include "tree/wait_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIR = S_IFDIR, REG = S_IFREG, LNK = S_IFLNK };

/* clang-format off */
const struct row name_rows[] = {
    {"", DIR | 0700, 0, NULL, NULL, "the groups", "mkdir makes one, rmdir removes it"},
    {"README", REG | 0400, ROW_SIZED, NULL, text_readme, "what one needs first, and this table", NULL},
    {"SKILL.md", REG | 0400, ROW_SIZED, NULL, text_skill, "how a program or a coding agent drives a group", NULL},
    {"wait", REG | 0400, ROW_LIVE, &wait_file_ops, NULL, "live: as G/wait, of all groups", NULL},
    {"wait.REASONS", REG | 0400, ROW_LIVE | ROW_HIDDEN, &wait_file_ops, NULL, "as G/wait.REASONS, of all groups", NULL},
    {"version", REG | 0400, ROW_SIZED, NULL, text_version, "ddipfs X.Y.Z wire W", NULL},
    {"trace", REG | 0400, ROW_LIVE, &event_file_trace_ops, NULL, "live: every FUSE request and wire message", NULL},
    {"G", DIR | 0500, ROW_CACHEABLE, NULL, NULL, NULL, NULL},
    {"G/ctl", REG | 0600, ROW_PRIVATE_NODE | ROW_SIZED, &ctl_file_group_ops, text_ctl, "the settings, as the verbs that set them", "verbs, below"},
    {"G/cell", REG | 0600, ROW_PRIVATE_NODE | ROW_CACHEABLE, &cell_file_ops, NULL, "the number of the cell that this descriptor submitted, else of the last", "Python source: runs on all ranks"},
    {"G/cell.LIST", REG | 0600, ROW_PRIVATE_NODE | ROW_HIDDEN, &cell_file_ops, NULL, "as cell", "runs on these ranks only, e.g. cell.0,2-3"},
    {"G/steer", REG | 0600, ROW_PRIVATE_NODE, &cell_file_steer_ops, NULL, "the last one: the number of its cell, how it ended, at which step it ran", "as cell, within the cell that runs: between the same two steps on all its ranks, or nowhere"},
    {"G/watch", REG | 0600, ROW_LIVE | ROW_PRIVATE_NODE, &cell_file_watch_ops, NULL, "live: the watch that this descriptor submitted, else the last: its number, state and step, and what it found", "a Python expression: stops all ranks of the running cell at the first step at which it is true on any"},
    {"G/stream", REG | 0600, ROW_LIVE | ROW_PRIVATE_NODE | ROW_CACHEABLE, &cell_file_stream_ops, NULL, "live: the number and then the stream of the cell that this descriptor submitted, else of the last", "as cell"},
    {"G/stream.LIST", REG | 0600, ROW_LIVE | ROW_PRIVATE_NODE | ROW_HIDDEN, &cell_file_stream_ops, NULL, "as stream", "as cell.LIST"},
    {"G/status", REG | 0400, ROW_SIZED, &steps_file_ops, text_status, "state, size, cell, queued, step, last, generation, start-up phases", NULL},
    {"G/status.json", REG | 0400, ROW_SIZED | ROW_HIDDEN, &steps_file_ops, text_status_json, "the same for programs; also of ranks, hosts, queue, stall, error, cells/N/status and cells/N/error", NULL},
    {"G/ranks.json", REG | 0400, ROW_PRIVATE_NODE | ROW_HIDDEN, &gpu_file_ops, text_ranks_json, NULL, NULL},
    {"G/hosts.json", REG | 0400, ROW_PRIVATE_NODE | ROW_HIDDEN, NULL, hosts_file_json, NULL, NULL},
    {"G/error.json", REG | 0400, ROW_SIZED | ROW_HIDDEN, NULL, text_error_json, NULL, NULL},
    {"G/stall.json", REG | 0400, ROW_PRIVATE_NODE | ROW_HIDDEN, &stall_file_json_ops, NULL, NULL, NULL},
    {"G/ranks", REG | 0400, ROW_PRIVATE_NODE, &gpu_file_ops, text_ranks, "a line for each rank", NULL},
    {"G/hosts", REG | 0400, ROW_PRIVATE_NODE, NULL, hosts_file_text, "a line for each host: state, round trip, ranks, queued bytes, its Python, torch and GPUs", NULL},
    {"G/gpus", REG | 0400, ROW_PRIVATE_NODE, &gpu_file_ops, gpu_file_text, "a line for each GPU that the group uses", NULL},
    {"G/queue", REG | 0400, ROW_PRIVATE_NODE, NULL, text_queue, "what runs and what waits: number, kind, state, ranks, who submitted it", NULL},
    {"G/queue.json", REG | 0400, ROW_PRIVATE_NODE | ROW_HIDDEN, NULL, text_queue_json, NULL, NULL},
    {"G/events", REG | 0400, ROW_LIVE, &event_file_ops, NULL, "live: state changes, cells, exits of ranks", NULL},
    {"G/events.last", REG | 0400, ROW_PRIVATE_NODE | ROW_HIDDEN, NULL, event_file_last, "the last events: a regular file", NULL},
    {"G/wait", REG | 0400, ROW_LIVE, &wait_file_ops, NULL, "live: a line when a cell has ended or failed, is stalled, waits for input, or is preempted", NULL},
    {"G/wait.REASONS", REG | 0400, ROW_LIVE | ROW_HIDDEN, &wait_file_ops, NULL, "as wait, for these reasons only, e.g. wait.failed,stalled,quiet=60 (no output for 60 s)", NULL},
    {"G/error", REG | 0600, ROW_SIZED, &text_error_ops, text_error, "the last failures with their text", "truncating clears it"},
    {"G/log", REG | 0400, ROW_LIVE, &stream_file_log_ops, NULL, "live: lines of all ranks, each with its rank (! for stderr)", NULL},
    {"G/log.last", REG | 0400, ROW_PRIVATE_NODE | ROW_HIDDEN, NULL, stream_file_log_last, "the last lines of all ranks: a regular file", NULL},
    {"G/names", REG | 0400, ROW_PRIVATE_NODE, &var_text_names_ops, NULL, "table of variables", NULL},
    {"G/stall", REG | 0400, ROW_PRIVATE_NODE, &stall_file_ops, NULL, "who waits for whom: each rank's collective and line, the odd one first", NULL},
    {"G/selftest", REG | 0400, ROW_SIZED, NULL, text_selftest, "the last selftest: time and bandwidth of each collective, errors, the slowest pair of ranks", NULL},
    {"G/result", LNK | 0777, 0, NULL, text_last_result, "link to cells/last/result", NULL},
    {"G/traceback", LNK | 0777, 0, NULL, text_last_traceback, "link to cells/last/traceback", NULL},
    {"G/cells", DIR | 0500, ROW_CACHEABLE, NULL, NULL, "history", NULL},
    {"G/cells/last", LNK | 0777, 0, NULL, text_last_cell, "link to the last one", NULL},
    {"G/cells/N", DIR | 0500, 0, NULL, NULL, NULL, NULL},
    {"G/cells/N/report", REG | 0400, ROW_SIZED, &report_file_ops, text_report, "in at most 2 KB: what it does or how it ended, why, at which lines, what its frames hold, its last output, where the rest is", NULL},
    {"G/cells/N/report.json", REG | 0400, ROW_SIZED, &report_file_json_ops, text_report_json, "the same for programs", NULL},
    {"G/cells/N/source", REG | 0400, ROW_SIZED, NULL, text_cell_source, "as submitted", NULL},
    {"G/cells/N/status", REG | 0400, ROW_SIZED, NULL, text_cell_status, "state, errno, times, ranks", NULL},
    {"G/cells/N/status.json", REG | 0400, ROW_SIZED | ROW_HIDDEN, NULL, text_cell_status_json, NULL, NULL},
    {"G/cells/N/error.json", REG | 0400, ROW_SIZED | ROW_HIDDEN, NULL, text_cell_error_json, NULL, NULL},
    {"G/cells/N/wait", REG | 0400, ROW_LIVE | ROW_PRIVATE_NODE, &cell_stream_wait_ops, NULL, "waits for the end, then returns the final status", NULL},
    {"G/cells/N/wait.REASONS", REG | 0400, ROW_LIVE | ROW_HIDDEN, &wait_file_ops, NULL, "as G/wait.REASONS, of this cell; ends with it", NULL},
    {"G/cells/N/result", REG | 0400, ROW_SIZED, NULL, text_cell_result, "value of the last expression, first rank", NULL},
    {"G/cells/N/error", REG | 0400, ROW_SIZED, NULL, text_cell_error, "a line for each rank that failed", NULL},
    {"G/cells/N/traceback", REG | 0400, ROW_SIZED, NULL, text_cell_traceback, "tracebacks, equal ones once, that of the first failure last", NULL},
    {"G/cells/N/stream", REG | 0400, ROW_LIVE, &cell_stream_ops, NULL, "live: JSON lines, everything that the cell prints and displays", NULL},
    {"G/cells/N/ctl", REG | 0200, ROW_PRIVATE_NODE, &ctl_file_cell_ops, NULL, NULL, "interrupt: this cell only"},
    {"G/cells/N/rankK", DIR | 0500, 0, NULL, NULL, NULL, NULL},
    {"G/cells/N/rankK/stdout", REG | 0400, 0, &output_file_cell_stdout_ops, NULL, "what the cell printed there", NULL},
    {"G/cells/N/rankK/stderr", REG | 0400, 0, &output_file_cell_stderr_ops, NULL, "likewise", NULL},
    {"G/cells/N/rankK/result", REG | 0400, ROW_SIZED, NULL, text_subtask_result, "value of the last expression", NULL},
    {"G/cells/N/rankK/traceback", REG | 0400, ROW_SIZED, NULL, text_subtask_traceback, "its traceback", NULL},
    {"G/cells/N/rankK/locals", DIR | 0500, 0, &frame_file_ops, NULL, "names of the frames that raised, the innermost first, until the rank's next cell", NULL},
    {"G/cells/N/rankK/locals/NAME.d", DIR | 0500, ROW_HIDDEN | ROW_NESTS, &inside_dir_ops, NULL, "the inside of the object", NULL},
    {"G/cells/N/rankK/locals/NAME.d/KEY", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "an entry as VIEW", NULL},
    {"G/cells/N/rankK/locals/NAME", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "its object as VIEW", NULL},
    {"G/cells/N/rankK/figureF.png", REG | 0400, ROW_PRIVATE_NODE, NULL, figure_file_text, "the F-th figure that the cell displayed there", NULL},
    {"G/cells/N/rankK/status", REG | 0400, ROW_SIZED, NULL, text_subtask_status, "state, errno, times", NULL},
    {"G/vars", DIR | 0700, ROW_CACHEABLE | ROW_VARIABLES, &running_names_ops, NULL, "variables of rank 0", "rm removes on all ranks, mv renames"},
    {"G/vars/STAGED", REG | 0600, ROW_MAPPED, &staged_ops, NULL, "temporary files that programs write and rename: .name, name~, 4913", "mv to NAME[.OP][.VIEW] pushes it"},
    {"G/vars/NAME.d", DIR | 0700, ROW_HIDDEN | ROW_NESTS, &inside_dir_ops, NULL, "the inside of rank 0's object: a dict's items, a list's by index, a module's tensors, an optimizer's state, columns, else attributes; also of these, as KEY.d", NULL},
    {"G/vars/NAME.d/KEY", REG | 0600, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_file, NULL, "an entry, or OP over all ranks', as VIEW", "sets it on all ranks: a module's tensor in place"},
    {"G/vars/NAME", REG | 0600, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_file, NULL, "rank 0's object, or OP over all ranks', as VIEW", "sets it on all ranks"},
    {"G/locals", DIR | 0500, 0, &frame_file_ops, NULL, "names that the running code of rank 0 sees in its frames", NULL},
    {"G/locals/NAME.d", DIR | 0500, ROW_HIDDEN | ROW_NESTS, &inside_dir_ops, NULL, "the inside of the object, as G/vars/NAME.d", NULL},
    {"G/locals/NAME.d/KEY", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "an entry, or OP over all ranks', as VIEW", NULL},
    {"G/locals/NAME", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "its object, or OP over all ranks', as VIEW", NULL},
    {"G/rankK", DIR | 0500, 0, NULL, NULL, NULL, NULL},
    {"G/rankK/status", REG | 0400, ROW_PRIVATE_NODE, &gpu_file_ops, text_rank_status, "state, pid, host, gpu, cell, since", NULL},
    {"G/rankK/env", REG | 0400, ROW_PRIVATE_NODE, NULL, env_file_text, "NAME=VALUE lines to join the process group as this rank", NULL},
    {"G/rankK/ctl", REG | 0200, ROW_PRIVATE_NODE, &ctl_file_rank_ops, NULL, NULL, "interrupt, kill, signal NAME, eof"},
    {"G/rankK/cell", REG | 0600, ROW_PRIVATE_NODE, &cell_file_ops, NULL, "as G/cell", "runs on this rank only"},
    {"G/rankK/stdout", REG | 0600, 0, &output_file_stdout_ops, NULL, "all output since start, over restarts", "truncating drops the output so far"},
    {"G/rankK/stderr", REG | 0600, 0, &output_file_stderr_ops, NULL, "likewise", "likewise"},
    {"G/rankK/follow", REG | 0400, ROW_LIVE, &stream_file_follow_ops, NULL, "live: both streams as they come", NULL},
    {"G/rankK/stdin", REG | 0200, ROW_PRIVATE_NODE, &stdin_file_ops, NULL, NULL, "its standard input: input(), pdb, select(), children"},
    {"G/rankK/stack", REG | 0400, ROW_PRIVATE_NODE, &stack_file_ops, NULL, "where the user's code is: its frames in the main thread", NULL},
    {"G/rankK/stack.all", REG | 0400, ROW_PRIVATE_NODE, &stack_file_all_ops, NULL, "the current Python stack of every thread", NULL},
    {"G/rankK/frames", REG | 0400, ROW_PRIVATE_NODE, &frame_file_ops, NULL, "a line for each frame of the user's code that runs: number, FILE:LINE, function, names", NULL},
    {"G/rankK/locals", DIR | 0500, 0, &frame_file_ops, NULL, "names that the running code sees in its frames, from the innermost on", NULL},
    {"G/rankK/locals/NAME.d", DIR | 0500, ROW_HIDDEN | ROW_NESTS, &inside_dir_ops, NULL, "the inside of the object", NULL},
    {"G/rankK/locals/NAME.d/KEY", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "an entry as VIEW", NULL},
    {"G/rankK/locals/NAME", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "its object as VIEW", NULL},
    {"G/rankK/locals.F", DIR | 0500, ROW_HIDDEN, &frame_file_ops, NULL, "those of frame F", NULL},
    {"G/rankK/locals.F/NAME.d", DIR | 0500, ROW_HIDDEN | ROW_NESTS, &inside_dir_ops, NULL, "the inside of the object", NULL},
    {"G/rankK/locals.F/NAME.d/KEY", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "an entry as VIEW", NULL},
    {"G/rankK/locals.F/NAME", REG | 0400, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_local, NULL, "its object as VIEW", NULL},
    {"G/rankK/gpu", REG | 0400, ROW_PRIVATE_NODE, &rank_gpu_file_ops, NULL, "memory of its GPU, and the largest objects there", NULL},
    {"G/rankK/vars", DIR | 0700, ROW_CACHEABLE | ROW_VARIABLES, &running_names_ops, NULL, "variables of this rank", "rm removes, mv renames"},
    {"G/rankK/vars/STAGED", REG | 0600, ROW_MAPPED, &staged_ops, NULL, "as in G/vars", "likewise"},
    {"G/rankK/vars/NAME.d", DIR | 0700, ROW_HIDDEN | ROW_NESTS, &inside_dir_ops, NULL, "the inside of this rank's object", NULL},
    {"G/rankK/vars/NAME.d/KEY", REG | 0600, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_file, NULL, "an entry as VIEW", "sets it on this rank"},
    {"G/rankK/vars/NAME", REG | 0600, ROW_PRIVATE_NODE | ROW_MAPPED, &var_ops_file, NULL, "this rank's object as VIEW", "sets it on this rank"},
};
/* clang-format on */
const size_t name_count = ARRAY_LEN(name_rows);

static int
find_group(struct place *at, const char *name)
{
	struct group *g = group_find(name);

	if (!g)
		return -ENOENT;
	at->g = group_ref(g);
	return 0;
}

static void
drop_group(void *state)
{
	group_unref(state);
}

/* The group after the last one listed or, if that has been removed meanwhile, after its serial
 * number. */
static bool
next_group(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	struct group *last = c->state, *g = TAILQ_FIRST(&groups);

	if (last && !last->gone)
		g = TAILQ_NEXT(last, link);
	while (g && g->serial <= c->at)
		g = TAILQ_NEXT(g, link);
	if (!g)
		return false;
	group_ref(g);
	if (last)
		group_unref(last);
	*c = (struct part_cursor){.at = g->serial, .state = g, .free = drop_group};
	child->g = g;
	snprintf(name, ENTRY_NAME_SIZE, "%s", g->name);
	return true;
}

/* A number without sign or leading zeros; -1 if it is not one. */
static long
plain_number(const char *s)
{
	char *end;
	long n = strtol(s, &end, 10);

	return *s < '0' || *s > '9' || *end || n > 1 << 30 || (*s == '0' && s[1]) ? -1 : n;
}

static int
find_cell(struct place *at, const char *name)
{
	long n = plain_number(name);
	struct cell *c = n > 0 ? cell_find(at->g, (int)n) : NULL;

	if (!c)
		return -ENOENT;
	at->cell = cell_ref(c);
	return 0;
}

static bool
next_cell(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	struct cell *cell = cell_after(at->g, (int)c->at);

	if (!cell)
		return false;
	c->at = (uint64_t)cell->number;
	child->cell = cell;
	snprintf(name, ENTRY_NAME_SIZE, "%d", cell->number);
	return true;
}

static int
find_rank(struct place *at, const char *name)
{
	long n = strncmp(name, "rank", 4) == 0 ? plain_number(name + 4) : -1;

	/* a cell keeps its ranks, as in place_gone() */
	if (n < 0 || (at->cell ? !cell_subtask(at->cell, (int)n) : n >= at->g->size))
		return -ENOENT;
	at->rank = (int)n;
	return 0;
}

static bool
next_rank(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	int i = (int)c->at++, n = at->cell ? at->cell->n : at->g->size;

	if (i >= n)
		return false;
	child->rank = at->cell ? at->cell->ranks[i] : i;
	snprintf(name, ENTRY_NAME_SIZE, "rank%d", child->rank);
	return true;
}

/* A lookup fails with an errno only, so the text goes to the group's `error`. */
static int
refuse(struct group *g, const char *name, const struct err *e)
{
	char *path = xasprintf("%s/%s", g->name, name);

	journal_fail(g, e, path);
	free(path);
	return -e->no;
}

/* Parses the list of ranks that follows a word with a dot. */
static int
find_list(struct place *at, const char *name, const char *word)
{
	size_t n = strlen(word);
	struct rank_set ranks;
	struct err e = {0};
	char *list;

	if (strncmp(name, word, n) != 0)
		return -ENOENT;
	list = xstrdup(name + n);
	if (rank_set_parse(&ranks, &list, 1, at->g->size, &e) < 0) {
		free(list);
		return refuse(at->g, name, &e);
	}
	at->name = list;
	return 0;
}

static int
find_cell_list(struct place *at, const char *name)
{
	return find_list(at, name, "cell.");
}

static int
find_stream_list(struct place *at, const char *name)
{
	return find_list(at, name, "stream.");
}

static int
find_reasons(struct place *at, const char *name)
{
	static const char word[] = "wait.";
	struct wait_reasons why;
	struct err e = {0};

	if (strncmp(name, word, sizeof(word) - 1) != 0)
		return -ENOENT;
	name += sizeof(word) - 1;
	if (wait_file_parse(name, &why, &e) < 0)
		return at->g ? refuse(at->g, name - (sizeof(word) - 1), &e) : -e.no;
	at->name = xstrdup(name);
	return 0;
}

static void
print_group(const struct place *at, struct buf *out)
{
	buf_adds(out, at->g->name);
}

static void
print_cell(const struct place *at, struct buf *out)
{
	buf_addf(out, "%d", at->cell->number);
}

static void
print_rank(const struct place *at, struct buf *out)
{
	buf_addf(out, "rank%d", at->rank);
}

static void
print_cell_list(const struct place *at, struct buf *out)
{
	buf_addf(out, "cell.%s", at->name);
}

static void
print_stream_list(const struct place *at, struct buf *out)
{
	buf_addf(out, "stream.%s", at->name);
}

static void
print_reasons(const struct place *at, struct buf *out)
{
	buf_addf(out, "wait.%s", at->name);
}

static void
print_name(const struct place *at, struct buf *out)
{
	buf_adds(out, at->name);
}

const struct part name_parts[] = {
    {"G", find_group, next_group, print_group},
    {"N", find_cell, next_cell, print_cell},
    {"rankK", find_rank, next_rank, print_rank},
    {"cell.LIST", find_cell_list, NULL, print_cell_list},
    {"stream.LIST", find_stream_list, NULL, print_stream_list},
    {"wait.REASONS", find_reasons, NULL, print_reasons},
    {"locals", frame_file_find_locals, frame_file_next_locals, frame_file_print},
    {"locals.F", frame_file_find_numbered, NULL, frame_file_print},
    {"figureF.png", figure_file_find, figure_file_next, figure_file_print},
    {"STAGED", staged_find, staged_next, print_name},
    {"NAME.d", inside_dir_find, inside_dir_next, frame_file_print_inside},
    {"KEY", inside_dir_find, inside_dir_next_key, print_name},
    {"NAME", var_names_find, var_names_next, print_name},
};
const size_t name_part_count = ARRAY_LEN(name_parts);
