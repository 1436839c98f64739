/*
 * The state of a rank, and the notices from its process. The modules behind hooks.h decide how to
 * react to them.
 */
#include "group/rank.h"
#include "base/daemon.h"
#include "group/events.h"
#include "group/external.h"
#include "group/facts.h"
#include "group/hooks.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/last_words.h"
#include "group/output.h"
#include "group/task.h"
#include "group/renewed.h"
#include "host/ticks.h"
#include "object/var_table.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* the number of ranks if none is set and there are no GPUs */
enum { NO_GPUS_SIZE = 2 };

static const char *const state_names[R_STATES] = {
    [R_NONE] = "stopped",
    [R_SPAWNING] = "starting",
    [R_STARTED] = "starting",
    [R_INIT] = "joining",
    [R_READY] = "idle",
    [R_DEAD] = "dead",
};

const char *
rank_state_name(struct rank *k)
{
	if (external_is(k))
		return "external";
	if (k->state == R_READY && queue_running(k))
		return k->input.waits == INPUT_DEBUGGER ? "debug"
		       : k->input.waits			? "input"
							: "busy";
	return state_names[k->state];
}

/* Keeps what earlier ranks with this number printed. The spool is opened when the rank starts:
 * opening thousands at once would block the loop. */
static void
rank_init(struct rank *k, struct group *g, int number)
{
	struct rank_output output = k->output;

	if (!output.known)
		output = (struct rank_output){
		    .spool = SPOOL_NOT_OPEN, .time = now_wall(), .known = true};
	*k = (struct rank){.g = g, .number = number, .slot = NO_SLOT, .since = now_wall()};
	k->output = output;
	k->table = var_table_new((struct slice){"", 0});
	TAILQ_INIT(&k->queue);
}

void
rank_fini(struct rank *k)
{
	static const struct err gone = {ENODEV, "the group is gone"};
	int slot = k->slot;

	assert(TAILQ_EMPTY(&k->queue)); /* waiters would wait forever */
	/* first, so that calls that fail now are not reported */
	output_end(k);
	k->slot = NO_SLOT;
	k->state = k->died_as = R_NONE;
	agent_slot_free(rank_agent(k), slot, &gone);
	var_table_unref(k->table);
	facts_drop(k);
	free(k->end.how);
	free(k->end.stderr_tail);
	free(k->end.wrong);
	k->table = NULL;
	k->end.how = k->end.stderr_tail = k->end.wrong = NULL;
}

bool
rank_any_process(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->ranks[i].slot != NO_SLOT || g->ranks[i].died_as != R_NONE)
			return true;
	return g->store.slot != NO_SLOT;
}

/* Maps room for MAX_RANKS, so that ranks never move. Only the pages of ranks in use take memory,
 * and unmapping returns it to the system. */
static struct rank *
new_ranks(void)
{
	void *p = mmap(NULL, MAX_RANKS * sizeof(struct rank), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for ranks");
	return p;
}

/* The number of ranks that the settings ask for. */
static int
wanted_size(const struct group *g)
{
	struct nvml_gpu *own;
	struct gpus gpus;
	struct err e;

	if (g->set.size)
		return (int)g->set.size;
	if (hosts_named(g))
		return (int)MIN(hosts_slots(g), (long)MAX_RANKS);
	/* the words were valid when they were set; if no GPUs can be chosen now, the default */
	if (host_choose_gpus(g->hosts.list[0], g->set.gpus, &gpus, &own, &e) < 0)
		return NO_GPUS_SIZE;
	return gpus_default_size(&gpus);
}

bool
rank_all_made(const struct group *g)
{
	return g->ranks && g->size == wanted_size(g);
}

void
rank_make_all(struct group *g)
{
	int size = wanted_size(g), before = g->size;

	if (rank_all_made(g) || rank_any_process(g))
		return;
	if (!g->ranks)
		g->ranks = new_ranks();
	for (int i = 0; i < g->size; i++)
		rank_fini(&g->ranks[i]);
	for (int i = size; i < g->size; i++) {
		ticks_forget("%s/rank%d", g->name, i);
		output_close(&g->ranks[i]);
	}
	for (int i = 0; i < size; i++)
		rank_init(&g->ranks[i], g, i);
	g->size = size;
	if (size < before)
		group_tell(output_moved, g); /* readers that follow a former rank */
}

void
rank_set_state(struct rank *k, enum rank_state state)
{
	k->state = state;
	k->since = now_wall();
	journal_changed(k->g);
}

/* Ranks mostly have the same variables and then share one table. */
static struct var_table *
table_of(const struct group *g, struct slice text)
{
	struct var_table *first = g->size ? g->ranks[0].table : NULL;

	return first && var_table_is(first, text) ? var_table_ref(first) : var_table_new(text);
}

void
rank_set_table(struct rank *k, struct slice text)
{
	struct var_table *old = k->table;

	if (var_table_is(old, text))
		return;
	k->table = table_of(k->g, text);
	group_tell(table_changed, k, old, k->table);
	var_table_unref(old);
	journal_changed(k->g);
}

void
rank_gone(struct rank *k, const struct err *why)
{
	output_end(k);
	k->died_as = k->state;
	k->state = R_DEAD;
	k->slot = NO_SLOT;
	renewed_note(k);
	rank_set_table(k, (struct slice){"", 0});
	event_rank_lost(k, why);
}

void
rank_set_dead(struct rank *k, const char *how)
{
	k->died_as = R_NONE;
	k->pid = 0;
	k->cell = 0;
	k->input.waits = 0;
	xreplace(&k->end.how, how);
	rank_set_state(k, R_DEAD);
}

void
rank_phase(struct group *g, const char *name, double ms)
{
	struct phase *p;

	if (g->life.phase_count == ARRAY_LEN(g->life.phases))
		return;
	p = &g->life.phases[g->life.phase_count++];
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->ms = ms;
}

static void
add_phases(struct group *g, struct slice phases)
{
	char *lines = slice_dup(phases), *save, *line;

	for (line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *space = strchr(line, ' ');

		if (!space)
			continue;
		*space = '\0';
		rank_phase(g, line, strtod(space + 1, NULL));
	}
	free(lines);
}

static void
on_started(struct rank *k, struct msg *m)
{
	uint32_t pid, port;
	struct slice phases, facts;

	if (wire_unpack(m, Nstarted, NULL, &pid, &port, &phases, &facts) < 0)
		return;
	k->pid = (pid_t)pid;
	facts_set(k, facts);
	output_open(k);
	if (k->number == 0)
		add_phases(k->g, phases);
	rank_set_state(k, R_STARTED);
	event_rank_started(k);
}

/* "exit status 1", "signal 9 (Killed)". ours: ddipfs sent that; memory: as in Nexit. */
static char *
describe_end(uint32_t status, bool ours, struct slice memory)
{
	int st = (int)status;
	struct buf b = {0};

	if (WIFEXITED(st))
		return xasprintf("exit status %d", WEXITSTATUS(st));
	buf_addf(&b, "signal %d (%s)", WTERMSIG(st), strsignal(WTERMSIG(st)));
	if (ours)
		buf_adds(&b, ", sent by ddipfs");
	else if (memory.n)
		buf_addf(&b, ": %.*s", (int)memory.n, memory.p);
	return b.p;
}

/* Did it end by a signal for which Python writes a stack? */
static bool
is_crash(uint32_t status)
{
	int st = (int)status, signal = WIFSIGNALED(st) ? WTERMSIG(st) : 0;

	return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE ||
	       signal == SIGILL;
}

/* Of the end of a process's stderr, what may explain its end: what it wrote in its cell; between
 * cells, if it exited by itself, what it wrote since the last one began, since the reason may have
 * been written before that ended. `at` is where it ends. */
static struct slice
own_words(struct rank *k, struct slice words, uint32_t status, const struct spool_mark *at)
{
	const struct subtask *j = queue_running(k);
	uint64_t *last = k->output.last, end = at->size[SPOOL_STDERR];
	uint64_t from = j && j->begun ? j->begin.size[SPOOL_STDERR] : last[!WIFEXITED((int)status)];
	uint64_t n = end - MIN(from, end);

	if (n < words.n) {
		words.p += words.n - n;
		words.n = n;
	}
	last[0] = last[1] = end;
	return words;
}

static void
on_exit_notice(struct rank *k, struct msg *m)
{
	uint32_t pid, status;
	struct slice memory, last;
	struct spool_mark at;
	struct err gone = {0};
	int slot = k->slot;
	char *how;

	if (wire_unpack(m, Nexit, NULL, &pid, &status, &memory, &last, &at.size[0], &at.size[1],
		&at.size[2], &at.records) < 0)
		return;
	output_place(k, &at);
	how = k->end.wrong ? xasprintf("killed, as %s", k->end.wrong)
			   : describe_end(status, k->kill_sent, memory);
	free(k->end.stderr_tail);
	k->end.stderr_tail = last_words(own_words(k, last, status, &at), is_crash(status));
	fail(&gone, EHOSTDOWN, "rank %d died: %s%s%s", k->number, how,
	    *k->end.stderr_tail ? "; its last words: " : "", k->end.stderr_tail);
	event_output_end(k, &at);
	rank_gone(k, &gone);
	if (WIFEXITED((int)status) && WEXITSTATUS((int)status) == 0)
		event_rank_exited(k);
	agent_slot_free(rank_agent(k), slot, &gone);
	event_rank_died(k, how);
	free(how);
}

static void
on_wrong(struct rank *k, struct msg *m)
{
	struct slice why;

	if (wire_unpack(m, Nwrong, NULL, &why) < 0)
		return;
	free(k->end.wrong);
	k->end.wrong = slice_dup(why);
}

static void
on_mark(struct rank *k, struct msg *m)
{
	struct spool_mark at;
	uint64_t tag;

	if (wire_unpack(m, Nmark, NULL, &tag, &at.size[0], &at.size[1], &at.size[2], &at.records) <
	    0)
		return;
	output_place(k, &at);
	event_output_mark(k, tag, &at);
}

/* host: where there is no room for it; NULL: here. why: what else it was; NULL: nothing. */
static void
output_lost(struct rank *k, uint64_t bytes, const char *host, const struct err *why)
{
	struct err e = {0};
	struct rlimit most;

	/* the same text each time, so that `error` counts it and keeps its other entries */
	if (why)
		fail(&e, why->no, "output of rank %d is lost: %s", k->number, why->text);
	else if (host)
		fail(&e, ENOSPC,
		    "output of rank %d is lost: host %s has no room for it in DDIP_STATE, TMPDIR "
		    "or /var/tmp",
		    k->number, host);
	else
		fail(&e, ENOSPC, "output of rank %d is lost: no room in %s%s", k->number,
		    k->g->run_dir,
		    getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY
			? ", or a file is larger than ulimit -f allows"
			: "");
	journal_fail_rank(k->g, k->number, &e, "output");
	journal_event(k->g, "output-lost rank=%d bytes=%llu", k->number, (unsigned long long)bytes);
}

static void
on_output(struct rank *k, struct msg *m)
{
	struct err e = {0};
	struct slice data;
	uint8_t stream;
	size_t lost;

	if (wire_unpack(m, Noutput, NULL, &stream, &data) < 0 || stream >= SPOOL_STREAMS)
		return;
	lost = output_take(k, stream, data, &e);
	if (lost)
		output_lost(k, lost, NULL, e.no ? &e : NULL);
}

static void
on_dropped(struct rank *k, struct msg *m)
{
	uint64_t bytes;
	uint8_t why;

	if (wire_unpack(m, Ndropped, NULL, &bytes, &why) < 0)
		return;
	if (why == DROPPED_UNSENT)
		journal_event(
		    k->g, "output-unsent rank=%d bytes=%llu", k->number, (unsigned long long)bytes);
	else
		output_lost(k, bytes, host_is_far(k->host) ? k->host->name : NULL, NULL);
}

static void
on_input(struct rank *k, struct msg *m)
{
	const struct subtask *j;
	uint8_t waits;

	static const char *const words[] = {[INPUT_NONE] = "got-input",
	    [INPUT_TEXT] = "waits-for-input",
	    [INPUT_PASSWORD] = "waits-for-input",
	    [INPUT_DEBUGGER] = "stopped-in-debugger"};
	bool debugged = k->input.waits == INPUT_DEBUGGER;

	if (wire_unpack(m, Ninput, NULL, &waits) < 0 || waits >= ARRAY_LEN(words))
		return;
	k->input.waits = waits;
	if (!waits && !queue_running(k))
		return; /* its cell has ended meanwhile */
	journal_event(
	    k->g, "rank %d %s", k->number, debugged && !waits ? "left-debugger" : words[waits]);
	j = queue_running(k);
	if (waits && waits != INPUT_DEBUGGER && j && j->w->cell)
		group_tell(cell_news, k->g, j->w->cell, CELL_INPUT, k->number);
	journal_changed(k->g);
}

static void
on_taken(struct rank *k, struct msg *m)
{
	uint32_t n;

	if (wire_unpack(m, Ntaken, NULL, &n) == 0)
		k->input.unread -= MIN((size_t)n, k->input.unread);
}

static void
on_signalled(struct rank *k, struct msg *m)
{
	uint32_t cell;
	uint8_t raised;

	if (wire_unpack(m, Nsignalled, NULL, &cell, &raised) < 0)
		return;
	event_signal_taken(k, cell);
}

static void
on_steered(struct rank *k, struct msg *m)
{
	uint32_t number, step;
	uint8_t clock;

	if (wire_unpack(m, Nsteered, NULL, &number, &clock, &step) == 0 &&
	    (clock < CLOCKS || !step))
		event_steer_arrived(k, number, clock, step);
}

static void
on_watched(struct rank *k, struct msg *m)
{
	uint32_t number, step;
	uint8_t clock, what;
	struct slice where, text;

	if (wire_unpack(m, Nwatched, NULL, &number, &clock, &step, &what, &where, &text) == 0 &&
	    clock < CLOCKS && what < WATCHED_COUNT)
		event_watch_reported(k, number, clock, step, what, where, text);
}

static void
on_memory(struct rank *k, struct msg *m)
{
	struct slice in_use;
	uint32_t cell;

	if (wire_unpack(m, Nmemory, NULL, &cell, &in_use) == 0)
		journal_event(k->g, "out-of-memory rank=%d cell=%u %.*s", k->number, cell,
		    (int)in_use.n, in_use.p);
}

static void
on_known_bad(struct rank *k, struct msg *m)
{
	struct slice why;

	if (wire_unpack(m, Nknownbad, NULL, &why) == 0)
		journal_event(k->g, "known-bad rank=%d %.*s", k->number, (int)why.n, why.p);
}

static void
on_stranger(struct rank *k, struct msg *m)
{
	char name[24];

	snprintf(name, sizeof(name), "rank=%d", k->number);
	journal_stranger(k->g, name, m);
}

/* A name that its Python lacks, or a way that it goes: in `status` once for the group. */
static void
on_patch(struct rank *k, struct msg *m)
{
	struct buf *told = &k->g->life.patches;
	struct slice line;

	if (wire_unpack(m, Npatch, NULL, &line) < 0 || memchr(line.p, '\n', line.n) ||
	    told->n + line.n > PATCHES_BYTES ||
	    (told->n && memmem(told->p, told->n, line.p, line.n)))
		return;
	buf_addf(told, "%.*s\n", (int)line.n, line.p);
	journal_event(k->g, "patch rank=%d %.*s", k->number, (int)line.n, line.p);
}

static const struct {
	int type;
	void (*fn)(struct rank *k, struct msg *m);
} notices[] = {
    {Nstarted, on_started},
    {Nexit, on_exit_notice},
    {Nmark, on_mark},
    {Noutput, on_output},
    {Ndropped, on_dropped},
    {Ninput, on_input},
    {Ntaken, on_taken},
    {Nsignalled, on_signalled},
    {Nsteered, on_steered},
    {Nwatched, on_watched},
    {Nmemory, on_memory},
    {Nknownbad, on_known_bad},
    {Nstranger, on_stranger},
    {Npatch, on_patch},
    {Nwrong, on_wrong},
};

static void
rank_notice(void *arg, struct msg *m)
{
	struct rank *k = arg;

	for (size_t i = 0; i < ARRAY_LEN(notices); i++)
		if (notices[i].type == m->type) {
			notices[i].fn(k, m);
			return;
		}
	note("rank %d: %s is not for the daemon", k->number, wire_name(m->type));
}

static void
rank_ended(void *arg, const struct err *why)
{
	event_rank_died(arg, why->text);
}

static void
rank_agent_lost(void *arg, const struct err *why)
{
	rank_gone(arg, why);
}

const struct slot_ops rank_slot = {rank_notice, rank_agent_lost, rank_ended};
