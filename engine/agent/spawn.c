/*
 * Starts a new engine (a rank or a store): its descriptors, its fork by a zygote or its cold start,
 * and its messages.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "memory.h"
#include "proc.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* By place. An engine that the daemon has forgotten may live on without one. */
static struct {
	struct engine **at;
	size_t room;
} places;

struct engine *
spawn_find(unsigned slot)
{
	unsigned place = slot_place(slot);
	struct engine *e = place < places.room ? places.at[place] : NULL;

	return e && e->slot == slot ? e : NULL;
}

static void
take_place(struct engine *e)
{
	size_t place = slot_place(e->slot), room = MAX(place + 1, places.room * 2);

	if (place >= places.room) {
		places.at = xrealloc(places.at, room * sizeof(struct engine *));
		memset(places.at + places.room, 0, (room - places.room) * sizeof(struct engine *));
		places.room = room;
	}
	places.at[place] = e;
	TAILQ_INSERT_TAIL(&agent.engines, e, link);
}

static void
close_given(struct engine *e)
{
	for (size_t i = 0; i < ARRAY_LEN(e->given); i++) {
		if (e->given[i] >= 0)
			close(e->given[i]);
		e->given[i] = -1;
	}
	if (e->ctl >= 0)
		close(e->ctl);
	e->ctl = -1;
}

void
spawn_free(struct engine *e)
{
	if (spawn_find(e->slot) == e)
		places.at[slot_place(e->slot)] = NULL;
	TAILQ_REMOVE(&agent.engines, e, link);
	objects_ended(e);
	combine_ended(e);
	loop_timer_del(e->output.linger);
	drain_close(e);
	close_given(e);
	conn_free(e->conn);
	buf_free(&e->env);
	free(e->name);
	free(e->dir);
	free(e);
}

/* The engine could not be started. */
static void
refuse(struct engine *e, const struct err *err)
{
	agent_refuse(e->slot, e->tag, err);
	spawn_free(e);
}

/* Writes the position in the output into the last fields of an R, which the engine left empty. */
static void
pass_marked(struct engine *e, struct msg *m)
{
	struct spool_mark at = drain_mark(e);
	struct buf body = {0};

	buf_add(&body, m->body, m->len - WIRE_MARK);
	for (size_t i = 0; i <= SPOOL_STREAMS; i++)
		wire_put_number(&body, '8', i < SPOOL_STREAMS ? at.size[i] : at.records);
	m->body = body.p;
	drain_pass(e, m, &at);
	buf_free(&body);
}

static void on_close(void *arg, const struct err *why);

/* Replies, and the notices of engines: all others that the daemon gets come from the agent. */
static bool
is_of_engine(const struct msg *m, struct err *e)
{
	static const uint8_t notices[] = {Nstarted, Ntaken, Ninput, Nsignalled, Nmemory, Nknownbad,
	    Nstranger, Npatch, Nsteered, Nwatched};

	if (wire_kind(m->type) == 'R' || memchr(notices, m->type, sizeof(notices)))
		return wire_check(m, e) == 0;
	fail(e, EBADMSG, "wire: %s is not for an engine to send", wire_name(m->type));
	return false;
}

/* Messages from an engine are for the daemon. */
static void
on_message(void *arg, struct msg *m)
{
	struct engine *e = arg;
	struct err why;

	if (!is_of_engine(m, &why)) {
		on_close(e, &why);
		return;
	}
	m->slot = e->slot;
	if (combine_answered(e, m) || (agent.away && objects_answered(e, m)))
		return;
	if (agent.away && m->fd >= 0) { /* it lies: what has one is done with */
		close(m->fd);
		m->fd = -1;
		m->flags &= (uint8_t)~FLAG_FD;
	}
	if (m->type == Rinit && e->pool)
		zygote_pool_busy(e->pool);
	if (m->flags & FLAG_MARK && e->output.spooled && m->len >= WIRE_MARK)
		pass_marked(e, m);
	else if (m->flags & FLAG_ORDERED && m->fd < 0)
		drain_pass(e, m, NULL);
	else
		conn_forward(agent.up, m);
}

/* Is it certain that the process goes on? */
static bool
lives(pid_t pid)
{
	struct proc_status s;

	return proc_status(pid, &s) == 0 && !proc_is_ending(pid);
}

/* Tells why the engine is about to be killed. */
static void
tell_wrong(struct engine *e, const char *what, const char *which)
{
	char *text = xasprintf("%s%s", what, which);

	drain_say(e, NULL, Nwrong, agent_text(text));
	free(text);
}

static void
on_close(void *arg, const struct err *why)
{
	struct engine *e = arg;

	if (why->no)
		note("%s: %s", e->name, why->text);
	if (why->no == EBADMSG)
		tell_wrong(e, "it sent a wrong message: ", why->text);
	else if (e->state == ENGINE_RUNS && lives(e->pid))
		tell_wrong(e, "it closed the engine's descriptors, or became another program", "");
	conn_free(e->conn);
	e->conn = NULL;
	reap_closed(e);
}

static void
answer(struct engine *e, pid_t pid, const char *how)
{
	e->state = ENGINE_RUNS;
	e->killed = memory_killed("");
	e->pid = pid;
	left_mark(e);
	e->zygote = NULL;
	close_given(e);
	conn_send(agent.up, Rspawn, 0, e->slot, e->tag, -1, (uint32_t)pid, agent_text(how));
	if (e->signal)
		kill(pid, e->signal);
	if (!e->conn)
		reap_closed(e);
}

/* Makes fd survive exec, and passes its number in the variable `name`. */
static void
hand_over(struct buf *env, const char *name, int fd)
{
	if (fd < 0)
		return;
	fd_cloexec(fd, false);
	env_add(env, "%s=%d", name, fd);
}

/* Starts a new process with nothing loaded: if there is no zygote that may fork, or the user wants
 * it. */
static void
start_cold(struct engine *e)
{
	struct zygote_pool *pool = e->pool;
	struct buf env = {0};
	struct err err;
	pid_t pid;

	buf_add(&env, pool->env.p, pool->env.n);
	env_add_threads(&env, pool, false);
	buf_add(&env, e->env.p, e->env.n);
	env_add(&env, "DDIP_PRELOAD=%s", pool->preload);
	env_add(&env, "%s=%d", ENGINE_ENV_AGENT, (int)getpid());
	env_add(&env, "%s=%d", ENGINE_ENV_KIND, e->kind);
	env_add(&env, "%s=%s", ENGINE_ENV_NAME, e->name);
	hand_over(&env, ENGINE_ENV_CTL, e->ctl);
	hand_over(&env, ENGINE_ENV_WAKEUP, e->given[ENGINE_FD_WAKEUP]);
	hand_over(&env, ENGINE_ENV_RING, e->given[ENGINE_FD_RING]);
	hand_over(&env, ENGINE_ENV_DISPLAY, e->given[ENGINE_FD_DISPLAY]);
	pid =
	    zygote_exec(pool, "rank", e->given[ENGINE_FD_OUT], e->given[ENGINE_FD_ERR], &env, &err);
	buf_free(&env);
	if (pid < 0)
		refuse(e, &err);
	else
		answer(e, pid, "cold");
}

static void
fork_by(struct zygote *z, struct engine *e)
{
	struct buf env = {0};

	env_add_threads(&env, e->pool, false);
	buf_add(&env, e->env.p, e->env.n);
	for (uint32_t i = 0; i < ENGINE_FDS; i++)
		if (e->given[i] >= 0)
			conn_send(z->conn, Nfd, 0, SLOT_AGENT, 0, e->given[i], i);
	conn_send(z->conn, Tfork, 0, SLOT_AGENT, e->slot, e->ctl, (uint32_t)e->kind,
	    agent_text(e->name), (struct slice){env.p, env.n});
	buf_free(&env);
	e->state = ENGINE_FORKS;
	e->zygote = z;
	z->taken = z->spare;
	zygote_pool_busy(e->pool);
}

static void
start(struct engine *e)
{
	struct zygote *z;

	if (e->cold) {
		start_cold(e);
		return;
	}
	z = zygote_pool_take(e->pool); /* may call spawn_failed, which frees e */
	if (z)
		fork_by(z, e);
}

void
spawn_ready(struct zygote_pool *pool)
{
	struct engine *e, *next;

	for (e = TAILQ_FIRST(&agent.engines); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->pool == pool && e->state == ENGINE_WAITS)
			fork_by(pool->now, e); /* the new zygote has no spares yet */
	}
}

void
spawn_failed(struct zygote_pool *pool, const struct err *err)
{
	struct engine *e, *next;

	for (e = TAILQ_FIRST(&agent.engines); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->pool == pool && e->state == ENGINE_WAITS)
			refuse(e, err);
	}
}

void
spawn_forget(struct zygote_pool *pool)
{
	struct engine *e;

	TAILQ_FOREACH (e, &agent.engines, link) {
		if (e->pool == pool)
			e->pool = NULL;
	}
}

static struct engine *
forking(struct zygote *z, uint64_t slot)
{
	struct engine *e;

	TAILQ_FOREACH (e, &agent.engines, link)
		if (e->slot == slot && e->state == ENGINE_FORKS && e->zygote == z)
			break;
	return e;
}

void
spawn_forked(struct zygote *z, struct msg *m)
{
	struct engine *e = forking(z, m->tag);
	uint32_t pid;
	int status;

	if (!e || wire_unpack(m, Rfork, NULL, &pid) < 0)
		return;
	if (e->pool)
		zygote_pool_busy(e->pool);
	if (z->spare)
		zygote_handed_over(z);
	answer(e, (pid_t)pid, z->successor ? "successor" : "zygote");
	if (reap_unclaimed((pid_t)pid, &status))
		reap_ended(e, status);
}

void
spawn_refused(struct zygote *z, struct msg *m)
{
	struct engine *e = forking(z, m->tag);
	struct slice text = {0};

	if (!e)
		return;
	wire_unpack(m, Rerror, NULL, NULL, &text, NULL);
	note("%s starts cold: %.*s", e->name, (int)text.n, text.p);
	e->zygote = NULL;
	if (e->pool) {
		start_cold(e);
		return;
	}
	refuse(e, &(struct err){ESRCH, "the zygote was given up"});
}

void
spawn_orphaned(struct zygote *z)
{
	struct engine *e;
	struct err err;

	fail(&err, EHOSTDOWN, "the zygote died while it forked a rank");
	for (e = TAILQ_FIRST(&agent.engines); e;) {
		if (e->state != ENGINE_FORKS || e->zygote != z) {
			e = TAILQ_NEXT(e, link);
			continue;
		}
		e->zygote = NULL;
		e->state = ENGINE_WAITS;
		if (z->spare && e->pool)
			start(e); /* another process can do it */
		else
			refuse(e, &err);
		e = TAILQ_FIRST(&agent.engines); /* others may have been freed too */
	}
}

/* Opens an engine's descriptors: its socket, and those that it prints to (a store prints to the
 * log). */
static int
open_engine(struct engine *e, struct err *err)
{
	int pair[2];

	if (fault("engine.socket", EMFILE) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_errno(err, "socket of %s", e->name);
	e->ctl = pair[1];
	e->conn = conn_new(agent.loop, pair[0], pair[0], on_message, on_close, e);
	if (e->kind == ENGINE_RANK)
		return drain_open(e, err);
	e->given[ENGINE_FD_OUT] = fcntl(2, F_DUPFD_CLOEXEC, 3);
	e->given[ENGINE_FD_ERR] = fcntl(2, F_DUPFD_CLOEXEC, 3);
	return e->given[ENGINE_FD_ERR] < 0 ? fail_errno(err, "log of %s", e->name) : 0;
}

void
spawn_ask(struct msg *m)
{
	struct slice dir, name, env;
	uint8_t kind, cold;
	uint32_t zygote;
	struct engine *e;
	struct err err = {0};

	if (wire_unpack(m, Tspawn, &err, &kind, &zygote, &dir, &name, &env, &cold) == 0) {
		if (!zygote_pool_find(zygote))
			fail(&err, EINVAL, "spawn: zygote %u was not asked for", zygote);
		else if (spawn_find(m->slot))
			fail(&err, EEXIST, "spawn: slot %u has an engine", m->slot);
	}
	if (err.no) {
		agent_refuse(m->slot, m->tag, &err);
		return;
	}
	e = xcalloc(1, sizeof(*e));
	*e = (struct engine){.slot = m->slot,
	    .kind = kind,
	    .cold = cold,
	    .tag = m->tag,
	    .ctl = -1,
	    .output = {.wakeup_fd = -1}};
	for (size_t i = 0; i < ARRAY_LEN(e->given); i++)
		e->given[i] = -1;
	for (size_t i = 0; i < ARRAY_LEN(e->output.outlet); i++)
		e->output.outlet[i] = (struct outlet){.e = e, .fd = -1};
	e->pool = zygote_pool_find(zygote);
	e->dir = xasprintf("%s/%.*s", agent.base, (int)dir.n, dir.p);
	e->name = slice_dup(name);
	buf_add(&e->env, env.p, env.n);
	if (e->env.n && e->env.p[e->env.n - 1])
		buf_addc(&e->env, '\0');
	env_add(&e->env, "DDIP_RUN_DIR=%s", e->dir);
	take_place(e);
	if (open_engine(e, &err) < 0)
		refuse(e, &err);
	else
		start(e);
}

void
spawn_pass(struct engine *e, struct msg *m)
{
	struct spool_mark at;

	if (!e->conn) {
		if (m->tag)
			agent_refuse(
			    m->slot, m->tag, &(struct err){EHOSTDOWN, "the engine has ended"});
		return;
	}
	if (m->flags & FLAG_MARK && e->output.spooled) {
		at = drain_mark(e);
		drain_say(e, &at, Nmark, m->tag, at.size[SPOOL_STDOUT], at.size[SPOOL_STDERR],
		    at.size[SPOOL_DISPLAY], at.records);
	}
	conn_forward(e->conn, m);
}

void
spawn_wrong(struct msg *m)
{
	struct engine *e = spawn_find(m->slot);
	struct slice text;
	struct err why;

	if (!e || !e->conn || wire_unpack(m, Nwrong, NULL, &text) < 0)
		return;
	fail(&why, EBADMSG, "%.*s", (int)text.n, text.p);
	on_close(e, &why);
}

void
spawn_signal(struct msg *m)
{
	struct engine *e = spawn_find(m->slot);
	uint32_t signo;
	uint8_t all;

	if (!e || wire_unpack(m, Nsignal, NULL, &signo, &all) < 0 || e->state == ENGINE_ENDED)
		return;
	if (e->state == ENGINE_WAITS && signo == SIGKILL)
		refuse(e, &(struct err){ECANCELED, "killed before it was started"});
	else if (e->state != ENGINE_RUNS)
		e->signal = (int)signo;
	else if (!all)
		kill(e->pid, (int)signo);
	else if (signo == SIGKILL)
		left_end(e);
	else
		kill(-e->pid, (int)signo);
}
