/*
 * All zygotes: processes that have loaded Python and torch and fork ranks in about ten
 * milliseconds. One zygote serves each Tzygote. In a quiet period it forks a successor that imports
 * more and then takes over. After that it forks spares: children that wait to become the ranks of
 * the next start, which then needs no fork. A zygote whose packages have changed on disk is
 * replaced.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "signal_name.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	QUIET_MS = 300,	 /* quiet period before the successor is forked */
	SPARE_MS = 60,	 /* quiet period before spares are forked */
	TAIL_MAX = 4096, /* last bytes of output that are kept */
	SPARES_MAX = 16
};

/* Tfork tags below this are the slots of engines. */
#define FORK_TAGS ((uint64_t)1 << 32)

struct zygote_pool *
zygote_pool_find(uint32_t id)
{
	struct zygote_pool *pool;

	TAILQ_FOREACH (pool, &agent.pools, link) {
		if (pool->id == id)
			return pool;
	}
	return NULL;
}

static struct zygote *
find_spare(struct zygote_pool *pool, bool ready)
{
	struct zygote *z;

	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->pool == pool && z->spare && !z->retired && !z->taken && (z->ready || !ready))
			return z;
	}
	return NULL;
}

/* pool's zygote is no longer of use, and neither are its spares, which have loaded what it has. */
static void
drop_now(struct zygote_pool *pool)
{
	struct zygote *spare;

	pool->now = NULL;
	while ((spare = find_spare(pool, false)))
		zygote_free(spare);
}

/* Lets the zygote end by itself, after the forks in progress. */
static void
retire(struct zygote *z)
{
	if (!z)
		return;
	if (z->pool->now == z)
		drop_now(z->pool);
	if (z->pool->next == z)
		z->pool->next = NULL;
	z->retired = true;
	conn_send(z->conn, Nquit, 0, SLOT_AGENT, 0, -1);
}

static void
read_tail(struct zygote_pool *pool)
{
	char *bytes;
	ssize_t n;

	for (;;) {
		bytes = buf_reserve(&pool->tail, TAIL_MAX);
		n = read(pool->err_in, bytes, TAIL_MAX);
		if (n <= 0)
			return;
		/* the daemon's log gets all of it; a full log must not stop us */
		if (write(2, bytes, (size_t)n) < 0)
			debug("agent", "log: %s", strerror(errno));
		pool->tail.n += (size_t)n;
		if (pool->tail.n > TAIL_MAX)
			buf_drop(&pool->tail, pool->tail.n - TAIL_MAX);
	}
}

static void
on_tail(void *arg, uint32_t events)
{
	read_tail(arg);
}

/* pool has no zygote: reports it to all waiters. */
static void
give_up(struct zygote_pool *pool, const struct err *e)
{
	if (pool->tag)
		agent_refuse(SLOT_AGENT, pool->tag, e);
	pool->tag = 0;
	spawn_failed(pool, e);
}

/* pool's Python has ended too early. */
static void
give_up_python(struct zygote_pool *pool)
{
	struct err e;
	size_t from;

	read_tail(pool);
	while (pool->tail.n && strchr("\n ", pool->tail.p[pool->tail.n - 1]))
		pool->tail.n--;
	/* if it does not all fit, the end matters */
	from = pool->tail.n > 700 ? pool->tail.n - 700 : 0;
	fail(&e, EHOSTDOWN, "Python %s ended before it was ready%s%.*s", pool->python,
	    pool->tail.n ? ":\n" : "", (int)(pool->tail.n - from),
	    pool->tail.n ? pool->tail.p + from : "");
	give_up(pool, &e);
}

static void
on_zygote_close(void *arg, const struct err *why)
{
	struct zygote *z = arg;
	struct zygote_pool *pool = z->pool;
	bool needed = pool && pool->now == z && !z->ready;

	if (why->no)
		note("zygote %d: %s", (int)z->pid, why->text);
	else if (pool && !z->retired && !z->spare)
		note("zygote %d of %s ended", (int)z->pid, pool->python);
	if (pool && pool->now == z)
		drop_now(pool);
	spawn_orphaned(z);
	zygote_free(z);
	if (needed)
		give_up_python(pool);
}

static void
on_nready(struct zygote *z, struct msg *m)
{
	struct zygote_pool *pool = z->pool;
	struct slice phases, python, paths;
	struct err e;

	if (z->retired)
		return; /* it became ready before it read Nquit */
	if (wire_unpack(m, Nready, &e, &phases, &python, &paths) < 0 || z->ready) {
		note("zygote %d: Nready was not expected", (int)z->pid);
		return;
	}
	z->ready = true;
	zygote_remember_ages(z, paths);
	if (pool->next == z) {
		retire(pool->now);
		pool->next = NULL;
		pool->now = z;
	}
	debug("agent", "zygote %d is ready%s", (int)z->pid, z->successor ? " (successor)" : "");
	if (!z->successor || pool->phases.n == 0) {
		buf_clear(&pool->phases);
		buf_add(&pool->phases, phases.p, phases.n);
	}
	if (pool->tag)
		conn_send(agent.up, Rzygote, 0, SLOT_AGENT, pool->tag, -1, pool->id,
		    (struct slice){pool->phases.p, pool->phases.n});
	pool->tag = 0;
	spawn_ready(pool);
	zygote_pool_busy(pool);
}

static void
on_rfork(struct zygote *z, struct msg *m)
{
	struct zygote *made;
	uint32_t pid;
	int status;

	if (m->tag < FORK_TAGS) {
		spawn_forked(z, m);
		return;
	}
	made = zygote_of_tag(m->tag);
	if (!made || wire_unpack(m, Rfork, NULL, &pid) < 0 || reap_unclaimed((pid_t)pid, &status))
		return; /* the close of its socket reports its end */
	made->pid = (pid_t)pid;
	made->ready = made->spare;
}

static void
on_refused(struct zygote *z, struct msg *m)
{
	struct zygote *made;

	if (m->tag >= FORK_TAGS) {
		if ((made = zygote_of_tag(m->tag)))
			zygote_free(made);
		return;
	}
	spawn_refused(z, m);
	if (z->spare) /* it was taken for this engine, and would count as a spare for ever */
		zygote_free(z);
}

static void
on_npreload(struct zygote *z, struct msg *m)
{
	struct slice failed;

	if (!z->retired && wire_unpack(m, Npreload, NULL, NULL, &failed) == 0)
		conn_send(agent.up, Npreload, 0, SLOT_AGENT, 0, -1, z->pool->id, failed);
}

static void
on_zygote_message(void *arg, struct msg *m)
{
	static const struct {
		int type;
		void (*fn)(struct zygote *z, struct msg *m);
	} rows[] = {
	    {Nready, on_nready}, {Npreload, on_npreload}, {Rfork, on_rfork}, {Rerror, on_refused}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].type == m->type)
			rows[i].fn(arg, m);
}

static struct zygote *
start(struct zygote_pool *pool, struct err *e)
{
	struct buf env = {0};
	struct stat cwd = {0};
	struct zygote *z;
	int theirs, fd;

	if (stat(pool->cwd, &cwd) == 0 && !S_ISDIR(cwd.st_mode))
		errno = ENOTDIR;
	if (!S_ISDIR(cwd.st_mode)) {
		fail(e, errno, "the directory %s: %s: set cwd to one that is there", pool->cwd,
		    strerror(errno));
		return NULL;
	}
	pool->cwd_dev = cwd.st_dev;
	pool->cwd_ino = cwd.st_ino;
	z = zygote_new(pool, on_zygote_message, on_zygote_close, &theirs, e);
	if (!z)
		return NULL;
	fd = fcntl(theirs, F_DUPFD, 10);
	close(theirs);
	buf_add(&env, pool->env.p, pool->env.n);
	env_add_threads(&env, pool, true);
	env_add(&env, "DDIP_PRELOAD=%s", pool->preload);
	env_add(&env, "%s=%d", ENGINE_ENV_CTL, fd);
	env_add(&env, "%s=%d", ENGINE_ENV_AGENT, (int)getpid());
	buf_clear(&pool->tail);
	/* for tests: no successor; with 1, the first zygote imports what it would (boot.py) */
	pool->successor_requested = getenv("DDIP_EAGER") != NULL;
	z->pid = zygote_exec(pool, "zygote", pool->err_out, pool->err_out, &env, e);
	buf_free(&env);
	close(fd);
	if (z->pid > 0)
		return z;
	z->pid = 0;
	zygote_free(z);
	return NULL;
}

struct zygote *
zygote_pool_take(struct zygote_pool *pool)
{
	struct err e;

	if (pool->now && pool->now->ready && zygote_is_stale(pool->now)) {
		debug("agent", "the packages of %s changed: a new zygote", pool->python);
		if (pool->next)
			zygote_free(pool->next);
		retire(pool->now);
	}
	if (pool->now && pool->now->ready) {
		struct zygote *spare = find_spare(pool, true);

		return spare ? spare : pool->now;
	}
	if (!pool->now) {
		pool->now = start(pool, &e);
		if (!pool->now) {
			note("%s", e.text);
			e.no = EHOSTDOWN;
			give_up(pool, &e);
		}
	}
	return NULL;
}

static bool
is_starting(struct zygote_pool *pool)
{
	struct engine *e;

	TAILQ_FOREACH (e, &agent.engines, link) {
		if (e->pool == pool && (e->state == ENGINE_WAITS || e->state == ENGINE_FORKS))
			return true;
	}
	return false;
}

/* Makes pool's zygote fork a successor or a spare. */
static void
fork_helper(struct zygote_pool *pool, uint32_t kind)
{
	static uint64_t last_tag = FORK_TAGS;
	struct zygote *z;
	struct err e;
	int theirs;

	z = zygote_new(pool, on_zygote_message, on_zygote_close, &theirs, &e);
	if (!z) {
		note("%s", e.text);
		return;
	}
	z->tag = ++last_tag;
	z->spare = kind == ENGINE_SPARE;
	z->successor = kind == ENGINE_SUCCESSOR || pool->now->successor;
	if (kind == ENGINE_SUCCESSOR)
		pool->next = z;
	conn_send(pool->now->conn, Tfork, 0, SLOT_AGENT, z->tag, theirs, kind, agent_text("zygote"),
	    (struct slice){0});
	close(theirs);
}

/* Live engines of the pool: a restart will want as many. */
static unsigned
engines_of(const struct zygote_pool *pool)
{
	const struct engine *e;
	unsigned n = 0;

	TAILQ_FOREACH (e, &agent.engines, link)
		n += e->pool == pool;
	return n;
}

/* A quiet period: the zygote prepares for the next start. */
static void
on_quiet(void *arg)
{
	struct zygote_pool *pool = arg;
	struct zygote *z;
	unsigned spares = 0;

	pool->idle = NULL;
	if (!pool->now || !pool->now->ready || pool->next || is_starting(pool))
		return;
	if (engines_of(pool))
		pool->spares = MIN(engines_of(pool), (unsigned)SPARES_MAX);
	if (!pool->successor_requested) {
		pool->successor_requested = true;
		fork_helper(pool, ENGINE_SUCCESSOR);
		return;
	}
	TAILQ_FOREACH (z, &agent.zygotes, link) {
		spares += z->pool == pool && z->spare && !z->retired;
	}
	for (; spares < pool->spares; spares++)
		fork_helper(pool, ENGINE_SPARE);
}

void
zygote_pool_busy(struct zygote_pool *pool)
{
	bool settled = pool->successor_requested && !pool->next;

	loop_timer_del(pool->idle);
	/* Imports use a core for a second, spares for some milliseconds. */
	pool->idle = loop_timer(agent.loop, settled ? SPARE_MS : QUIET_MS, on_quiet, pool);
}

bool
zygote_pool_spares(int signo)
{
	struct zygote_pool *pool;

	TAILQ_FOREACH (pool, &agent.pools, link)
		if (signal_on_preempt((struct slice){pool->env.p, pool->env.n}) == signo)
			return true;
	return false;
}

bool
zygote_pool_reaped(pid_t pid, int status)
{
	struct zygote *z;

	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->pid != pid)
			continue;
		z->pid = 0;
		if (WIFSIGNALED(status) && !z->retired)
			note("zygote %d was ended by signal %d", (int)pid, WTERMSIG(status));
		/* A process that it left behind may hold the socket, so handle its end now. But a
		 * zygote that was asked to quit may have forked just before: its last Rfork is
		 * still to come, and then the close. */
		if (!z->retired || WIFSIGNALED(status))
			on_zygote_close(z, &(struct err){0});
		return true;
	}
	return false;
}

void
zygote_pool_ask(struct msg *m)
{
	struct slice python, env, cwd, preload;
	struct zygote_pool *pool;
	struct err e;
	uint32_t id;
	int fds[2];

	if (wire_unpack(m, Tzygote, &e, &id, &python, &env, &cwd, &preload) < 0) {
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	pool = zygote_pool_find(id);
	if (pool || fault("zygote.pipe", EMFILE) || pipe2(fds, O_CLOEXEC) < 0) {
		fail(&e, pool ? EEXIST : errno,
		    pool ? "zygote %u was asked for already" : "zygote %u: pipe", id);
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	pool = xcalloc(1, sizeof(*pool));
	*pool = (struct zygote_pool){.id = id, .tag = m->tag, .err_in = fds[0], .err_out = fds[1]};
	pool->python = slice_dup(python);
	pool->cwd = slice_dup(cwd);
	pool->preload = slice_dup(preload);
	buf_add(&pool->env, env.p, env.n);
	if (pool->env.n && pool->env.p[pool->env.n - 1])
		buf_addc(&pool->env, '\0');
	fd_nonblock(pool->err_in, true);
	pool->err_watch = loop_fd(agent.loop, pool->err_in, EPOLLIN, on_tail, pool);
	TAILQ_INSERT_TAIL(&agent.pools, pool, link);
	zygote_pool_take(pool);
}

void
zygote_pool_release(struct msg *m)
{
	static const struct err gone = {ESRCH, "the zygote was given up"};
	struct zygote_pool *pool;
	struct zygote *z;
	uint32_t id;

	if (wire_unpack(m, Nrelease, NULL, &id) < 0 || !(pool = zygote_pool_find(id)))
		return;
	spawn_failed(pool, &gone);
	if (pool->tag)
		agent_refuse(SLOT_AGENT, pool->tag, &gone);
	loop_timer_del(pool->idle);
	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->pool != pool)
			continue;
		retire(z);
		z->pool = NULL;
	}
	spawn_forget(pool);
	loop_fd_del(pool->err_watch);
	close(pool->err_in);
	close(pool->err_out);
	TAILQ_REMOVE(&agent.pools, pool, link);
	free(pool->python);
	free(pool->cwd);
	free(pool->preload);
	buf_free(&pool->env);
	buf_free(&pool->tail);
	buf_free(&pool->phases);
	free(pool);
}
