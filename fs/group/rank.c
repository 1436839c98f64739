/* One engine: spawning, its first messages, its notices, its end. What follows from them is
 * group.c's. */
#include "group/rank.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/task.h"
#include "host/gpustat.h"
#include "host/zygotes.h"
#include "object/var_table.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 600 };

#define FRAME "frame #"

static const struct slot_ops rank_slot, store_slot;
static void rank_gone(struct rank *k, const struct err *why);

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
	if (k->state == R_READY && k->waits_input)
		return "input";
	if (k->state == R_READY && queue_running(k))
		return "busy";
	return state_names[k->state];
}

static struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

void
rank_init(struct rank *k, struct group *g, int number)
{
	struct err e = {0};
	char name[32];

	*k = (struct rank){.g = g, .number = number, .slot = NO_SLOT, .since = now_wall()};
	k->output.time = k->since;
	k->table = var_table_new((struct slice){"", 0});
	TAILQ_INIT(&k->queue);
	snprintf(name, sizeof(name), "rank%d", number);
	if (spool_reader_open(&k->output.spool, g->run_dir, name, &e) < 0)
		group_fail(g, &e, "start");
}

void
rank_fini(struct rank *k)
{
	static const struct err gone = {ENODEV, "the group is gone"};

	if (k->g->agent)
		agent_slot_free(k->g->agent, k->slot, &gone);
	k->slot = NO_SLOT;
	spool_reader_close(&k->output.spool);
	var_table_unref(k->table);
	free(k->last_exit);
	free(k->stderr_tail);
	k->table = NULL;
	k->last_exit = k->stderr_tail = NULL;
}

void
rank_set_state(struct rank *k, enum rank_state state)
{
	k->state = state;
	k->since = now_wall();
	group_changed(k->g);
}

/* Ranks mostly have the same variables: one table then serves them all. */
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
	group_changed(k->g);
}

static void
on_spawned(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct slice how;
	uint32_t pid;

	if (!m) {
		int slot = k->slot;

		if (slot == NO_SLOT)
			return; /* with its agent: that is told elsewhere */
		rank_gone(k, e);
		agent_slot_free(k->g->agent, slot, e);
		rank_set_state(k, R_DEAD);
		group_tell(rank_spawn_failed, k, e);
		return;
	}
	if (wire_unpack(m, NULL, &pid, &how) < 0)
		return;
	k->pid = (pid_t)pid;
	snprintf(k->spawn_method, sizeof(k->spawn_method), "%.*s", (int)how.n, how.p);
}

static void
spawn(struct group *g, int kind, int slot, const char *name, reply_fn *fn, void *arg)
{
	struct buf env = {0};

	buf_addf(&env, "DDIP_GROUP=%s%cDDIP_DAEMON_PID=%d%c", g->name, 0, (int)getpid(), 0);
	if (kind == ENGINE_STORE && g->store.port)
		buf_addf(&env, "DDIP_STORE_PORT=%u%c", g->store.port, 0);
	if (kind == ENGINE_RANK)
		gpustat_env(g, ((struct rank *)arg)->number, &env);
	agent_send(g->agent, Tspawn, 0, slot, agent_tag(g->agent, slot, fn, arg), -1,
	    (uint32_t)kind, g->zygote, text(g->run_dir), text(name), ((struct slice){env.p, env.n}),
	    (uint32_t)0);
	buf_free(&env);
}

void
rank_spawn(struct rank *k)
{
	struct group *g = k->g;
	char name[32];

	snprintf(name, sizeof(name), "rank%d", k->number);
	free(k->last_exit);
	free(k->stderr_tail);
	k->last_exit = k->stderr_tail = NULL;
	k->pid = 0;
	k->cell = 0;
	k->waits_input = k->kill_sent = false;
	k->slot = agent_slot(g->agent, &rank_slot, k);
	rank_set_state(k, R_SPAWNING);
	spawn(g, ENGINE_RANK, k->slot, name, on_spawned, k);
}

/* The store's process has ended, or never came. */
static void
store_gone(struct group *g, const struct err *e)
{
	bool listened = g->store.listening;

	g->store.slot = NO_SLOT;
	g->store.pid = 0;
	g->store.listening = false;
	group_tell(store_died, g, listened, e);
}

static void
on_store_spawned(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct group *g = arg;
	struct slice how;
	uint32_t pid;

	if (!m && g->agent->conn && g->store.slot != NO_SLOT) {
		agent_slot_free(g->agent, g->store.slot, e);
		store_gone(g, e);
	} else if (m && wire_unpack(m, NULL, &pid, &how) == 0) {
		g->store.pid = (pid_t)pid;
	}
}

bool
rank_store_wanted(const struct group *g)
{
	return strcmp(g->set.backend, "none") != 0;
}

uint32_t
rank_zygote(struct group *g)
{
	struct zygote_spec spec = {g->set.python, g->set.cwd, g->set.preload, g->set.env};

	return zygotes_want(g->agent, g->zygote, &spec);
}

static bool
store_reachable(const struct group *g)
{
	return g->store.slot != NO_SLOT && g->agent && g->agent->conn;
}

void
rank_quit_store(struct group *g)
{
	if (store_reachable(g))
		agent_send(g->agent, Nquit, 0, g->store.slot, 0, -1);
}

void
rank_kill_store(struct group *g)
{
	if (store_reachable(g))
		agent_send(
		    g->agent, Nsignal, 0, g->store.slot, 0, -1, (uint32_t)SIGKILL, (uint32_t)1);
}

void
rank_spawn_store(struct group *g)
{
	g->store.listening = false;
	g->store.slot = agent_slot(g->agent, &store_slot, g);
	spawn(g, ENGINE_STORE, g->store.slot, "store", on_store_spawned, g);
}

static void
on_joined(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank *k = arg;
	struct slice phases, table;
	struct err why;

	if (!m) {
		if (k->state != R_INIT)
			return; /* its death is told elsewhere */
		why = *e;
		snprintf(why.text, sizeof(why.text), "rank %d could not join: %.800s", k->number,
		    e->text);
		group_tell(rank_join_failed, k, &why);
		return;
	}
	if (wire_unpack(m, NULL, &phases, &table) < 0)
		return;
	rank_set_table(k, table);
	rank_set_state(k, R_READY);
	group_tell(rank_ready, k);
}

static bool
reachable(struct rank *k)
{
	return k->slot != NO_SLOT && k->g->agent && k->g->agent->conn;
}

void
rank_set_autogc(struct rank *k)
{
	if (reachable(k))
		agent_send(k->g->agent, Nautogc, 0, k->slot, 0, -1, (uint32_t)k->g->set.autogc);
}

void
rank_env(const struct rank *k, struct buf *env)
{
	const struct group *g = k->g;
	int local = gpustat_local_rank(g, k->number), local_size = gpustat_local_size(g);

	buf_addf(env, "RANK=%d%cLOCAL_RANK=%d%c", k->number, 0, local, 0);
	buf_addf(env, "WORLD_SIZE=%d%cLOCAL_WORLD_SIZE=%d%c", g->size, 0, local_size, 0);
	buf_addf(env, "GROUP_RANK=%d%cGROUP_WORLD_SIZE=%d%cROLE_NAME=default%c",
	    k->number / local_size, 0, (g->size + local_size - 1) / local_size, 0, 0);
	buf_addf(env, "ROLE_RANK=%d%cROLE_WORLD_SIZE=%d%c", k->number, 0, g->size, 0);
	buf_addf(env, "MASTER_ADDR=127.0.0.1%cMASTER_PORT=%u%c", 0, g->store.port, 0);
	buf_addf(env, "TORCHELASTIC_RESTART_COUNT=0%cTORCHELASTIC_MAX_RESTARTS=0%c", 0, 0);
	buf_addf(
	    env, "TORCHELASTIC_RUN_ID=ddip-%s-%llu%c", g->name, (unsigned long long)g->serial, 0);
	buf_addf(env, "TORCHELASTIC_USE_AGENT_STORE=True%c", 0);
}

void
rank_join(struct rank *k)
{
	struct group *g = k->g;
	struct buf env = {0}, external = {0};

	rank_env(k, &env);
	buf_addf(&env, "TORCHELASTIC_ERROR_FILE=%s/rank%d.error.json%c", g->run_dir, k->number, 0);
	external_list(&g->set, &external);
	if (external.n)
		buf_addf(&env, "DDIP_EXTERNAL=%s%c", external.p, 0);
	if (*g->set.env)
		buf_addf(&env, "DDIP_SETTINGS=%s%c", g->set.env, 0);
	rank_set_state(k, R_INIT);
	agent_send(g->agent, Tinit, 0, k->slot, agent_tag(g->agent, k->slot, on_joined, k), -1,
	    (uint32_t)k->number, (uint32_t)g->size, (uint32_t)gpustat_local_rank(g, k->number),
	    g->recovery.generation, text(g->set.backend), ((struct slice){env.p, env.n}));
	buf_free(&env);
	buf_free(&external);
	if (!g->set.autogc)
		rank_set_autogc(k);
}

static void
rank_gone(struct rank *k, const struct err *why)
{
	k->died_as = k->state;
	k->state = R_DEAD;
	k->slot = NO_SLOT;
	rank_set_table(k, (struct slice){"", 0});
	group_tell(rank_lost, k, why);
}

void
rank_set_dead(struct rank *k, const char *how)
{
	k->pid = 0;
	k->cell = 0;
	k->waits_input = false;
	free(k->last_exit);
	k->last_exit = xstrdup(how);
	rank_set_state(k, R_DEAD);
}

void
rank_quit(struct rank *k)
{
	if (reachable(k))
		agent_send(k->g->agent, Nquit, 0, k->slot, 0, -1);
}

void
rank_kill(struct rank *k)
{
	if (!reachable(k))
		return;
	k->kill_sent = true;
	agent_send(k->g->agent, Nsignal, 0, k->slot, 0, -1, (uint32_t)SIGKILL, (uint32_t)1);
}

void
rank_signal(struct rank *k, int signo)
{
	if (reachable(k))
		agent_send(k->g->agent, Nsignal, 0, k->slot, 0, -1, (uint32_t)signo, (uint32_t)0);
}

void
rank_interrupt(struct rank *k, int cell)
{
	if (reachable(k))
		agent_send(k->g->agent, Nintr, 0, k->slot, 0, -1, (uint32_t)cell);
}

void
rank_abort(struct rank *k, bool always)
{
	if (reachable(k))
		agent_send(k->g->agent, Nabort, 0, k->slot, 0, -1, (uint32_t)always, (uint32_t)0);
}

void
rank_abort_stuck(struct rank *k, double seconds)
{
	if (reachable(k))
		agent_send(k->g->agent, Nabort, 0, k->slot, 0, -1, (uint32_t)0,
		    (uint32_t)(seconds * 1000));
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
on_born(struct rank *k, struct msg *m)
{
	uint32_t pid, port;
	struct slice phases;

	if (wire_unpack(m, NULL, &pid, &port, &phases) < 0)
		return;
	k->pid = (pid_t)pid;
	if (k->number == 0)
		add_phases(k->g, phases);
	rank_set_state(k, R_STARTED);
	group_tell(rank_started, k);
}

/* "exit status 1", "signal 9 (Killed)" */
static char *
describe_end(uint32_t status)
{
	int st = (int)status;

	if (WIFSIGNALED(st))
		return xasprintf("signal %d (%s)", WTERMSIG(st), strsignal(WTERMSIG(st)));
	return xasprintf("exit status %d", WEXITSTATUS(st));
}

/* The end of what it wrote to stderr, in whole lines, without C++ stacks: torch prints one with
 * each warning of a lost connection. Owned by the caller. */
static char *
last_words(struct slice tail)
{
	struct buf kept = {0};
	const char *end = tail.p + tail.n, *from, *line;
	char *words;

	for (const char *at = tail.p, *next; at < end; at = next) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		next = newline ? newline + 1 : end;
		if ((size_t)(next - at) < strlen(FRAME) || memcmp(at, FRAME, strlen(FRAME)) != 0)
			buf_add(&kept, at, (size_t)(next - at));
	}
	buf_addc(&kept, '\0');
	from = kept.p + (kept.n > WORDS_MAX ? kept.n - WORDS_MAX : 0);
	if (from > kept.p && (line = strchr(from, '\n')) && line[1])
		from = line + 1;
	words = xstrdup(from);
	buf_free(&kept);
	return words;
}

static void
on_exit_notice(struct rank *k, struct msg *m)
{
	uint32_t pid, status;
	struct slice last;
	struct spool_mark at;
	struct err gone = {0};
	int slot = k->slot;
	char *how;

	if (wire_unpack(m, NULL, &pid, &status, &last, &at.size[0], &at.size[1], &at.size[2],
		&at.records) < 0)
		return;
	how = describe_end(status);
	free(k->stderr_tail);
	k->stderr_tail = last_words(last);
	fail(&gone, EHOSTDOWN, "rank %d died: %s%s%s", k->number, how,
	    *k->stderr_tail ? "; its last words: " : "", k->stderr_tail);
	group_tell(output_end, k, &at);
	rank_gone(k, &gone);
	if (WIFEXITED((int)status) && WEXITSTATUS((int)status) == 0)
		group_tell(rank_exited, k);
	agent_slot_free(k->g->agent, slot, &gone);
	group_tell(rank_died, k, how);
	free(how);
}

static void
on_mark(struct rank *k, struct msg *m)
{
	struct spool_mark at;
	uint32_t tag;

	if (wire_unpack(m, NULL, &tag, &at.size[0], &at.size[1], &at.size[2], &at.records) == 0)
		group_tell(output_mark, k, tag, &at);
}

static void
on_dropped(struct rank *k, struct msg *m)
{
	struct err e = {0};
	uint64_t bytes;

	if (wire_unpack(m, NULL, &bytes) < 0)
		return;
	fail(&e, ENOSPC, "%llu bytes of output of rank %d are lost: no room in %s",
	    (unsigned long long)bytes, k->number, k->g->run_dir);
	group_fail(k->g, &e, "output");
	group_event(k->g, "output-lost rank=%d bytes=%llu", k->number, (unsigned long long)bytes);
}

static void
on_input(struct rank *k, struct msg *m)
{
	uint8_t waits;

	if (wire_unpack(m, NULL, &waits) < 0)
		return;
	k->waits_input = waits;
	group_event(k->g, "rank %d %s", k->number, waits ? "waits-for-input" : "got-input");
	group_changed(k->g);
}

static void
on_signalled(struct rank *k, struct msg *m)
{
	uint32_t cell;
	uint8_t raised;

	if (wire_unpack(m, NULL, &cell, &raised) < 0)
		return;
	group_tell(signal_taken, k, cell);
}

static const struct {
	int type;
	void (*fn)(struct rank *k, struct msg *m);
} notices[] = {
    {Nborn, on_born},
    {Nexit, on_exit_notice},
    {Nmark, on_mark},
    {Ndropped, on_dropped},
    {Ninput, on_input},
    {Nsignalled, on_signalled},
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
	group_tell(rank_died, arg, why->text);
}

static void
rank_agent_lost(void *arg, const struct err *why)
{
	rank_gone(arg, why);
}

static void
store_notice(void *arg, struct msg *m)
{
	struct group *g = arg;
	struct err e = {0};
	uint32_t pid, port;
	struct slice phases;

	if (m->type == Nborn && wire_unpack(m, NULL, &pid, &port, &phases) == 0) {
		g->store.port = port;
		g->store.listening = true;
		group_tell(store_started, g);
	} else if (m->type == Nexit) {
		fail(&e, EHOSTDOWN, "the process that holds the rendezvous store has ended");
		agent_slot_free(g->agent, g->store.slot, &e);
		store_gone(g, &e);
	}
}

static void
store_ended(void *arg, const struct err *why)
{
	store_gone(arg, why);
}

static const struct slot_ops rank_slot = {rank_notice, rank_agent_lost, rank_ended};
static const struct slot_ops store_slot = {store_notice, NULL, store_ended};
