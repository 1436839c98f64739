/*
 * The daemon's side of the watchdog: a set of changed paths, sent over a pipe at most every
 * TICK_MS.
 */
#include "host/ticks.h"
#include "base/daemon.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

/* AGAIN_MS: a watchdog that exits sooner than this after its start is restarted this much later. */
enum { TICK_MS = 10, AGAIN_MS = 1000, BUCKETS = 1024 };

struct pending_tick {
	enum tick_kind kind;
	bool told; /* CREATE, DELETE: sent to the watchdog, whose request has not come yet */
	char *path;
	TAILQ_ENTRY(pending_tick) link;
	LIST_ENTRY(pending_tick) same_hash;
};

static TAILQ_HEAD(, pending_tick) notices = TAILQ_HEAD_INITIALIZER(notices);
static LIST_HEAD(, pending_tick) by_path[BUCKETS];
static size_t pending; /* number of CREATE and DELETE notices */
static const char letters[TICK_KINDS] = {'m', 'w', 'c', 'd'};
static int pipe_fd = -1;
static pid_t watchdog;	 /* 0: none */
static uint64_t spawned; /* now_ns */
static char device[32];	 /* of the mount; "" until known */
static pid_t *agents;
static size_t agent_count;
static struct timer *tick, *again;
static struct watch *writable;
static struct buf out;

/* Starts the process. 0 or -errno. */
static int
spawn(void)
{
	char *argv[] = {
	    xstrdup("ddipfs"), xstrdup("--watchdog"), xstrdup(daemon_.mountpoint), NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int ends[2], r;

	if (fault("watchdog.pipe", EMFILE) || pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, ends[0], 0);
	posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&files, daemon_.log_fd, STDERR_FILENO);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
	r = fault("watchdog.spawn", EAGAIN)
		? EAGAIN
		: posix_spawn(&watchdog, "/proc/self/exe", &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	for (int i = 0; argv[i]; i++)
		free(argv[i]);
	close(ends[0]);
	if (r != 0) {
		close(ends[1]);
		watchdog = 0;
		return -r;
	}
	pipe_fd = ends[1];
	fd_nonblock(pipe_fd, true);
	spawned = now_ns();
	return 0;
}

pid_t
ticks_watchdog(void)
{
	return watchdog;
}

/* Closes the pipe to the watchdog. */
static void
hang_up(void)
{
	loop_fd_del(writable);
	writable = NULL;
	if (pipe_fd >= 0)
		close(pipe_fd);
	pipe_fd = -1;
	buf_clear(&out);
}

static void push(void);

static void
on_writable(void *arg, uint32_t events)
{
	loop_fd_del(writable);
	writable = NULL;
	push();
}

/* Sends what is queued; the rest goes when the pipe becomes writable. */
static void
push(void)
{
	while (pipe_fd >= 0 && out.n) {
		ssize_t n = fault("watchdog.write", EPIPE) ? -1 : write(pipe_fd, out.p, out.n);

		if (n > 0) {
			buf_drop(&out, (size_t)n);
			continue;
		}
		if (n < 0 && errno == EAGAIN) {
			if (!writable)
				writable =
				    loop_fd(daemon_.loop, pipe_fd, EPOLLOUT, on_writable, NULL);
			return;
		}
		if (n < 0 && errno == EINTR)
			continue;
		hang_up(); /* SIGCHLD will report its exit */
	}
}

/* Tells the watchdog something that ticks_start() repeats: nothing while there is none. */
static void
say(const char *fmt, ...)
{
	va_list ap;

	if (pipe_fd < 0)
		return;
	va_start(ap, fmt);
	buf_vaddf(&out, fmt, ap);
	buf_addc(&out, '\0');
	va_end(ap);
	push();
}

int
ticks_start(void)
{
	int r = spawn();

	if (r < 0)
		return r;
	if (*device)
		say("dev %s", device);
	for (size_t i = 0; i < agent_count; i++)
		say("agent %d", (int)agents[i]);
	return 0;
}

void
ticks_mounted(unsigned major, unsigned minor)
{
	snprintf(device, sizeof(device), "%u:%u", major, minor);
	say("dev %s", device);
}

void
ticks_agent(pid_t pid)
{
	agents = xrealloc(agents, (agent_count + 1) * sizeof(*agents));
	agents[agent_count++] = pid;
	say("agent %d", (int)pid);
}

void
ticks_agent_gone(pid_t pid)
{
	for (size_t i = 0; i < agent_count; i++)
		if (agents[i] == pid)
			agents[i--] = agents[--agent_count];
}

/* For CREATE and DELETE the watchdog sends the daemon a request of its own; the others need
 * none. */
static bool
is_asked_for(enum tick_kind kind)
{
	return kind == TICK_CREATE || kind == TICK_DELETE;
}

static void
forget(struct pending_tick *n)
{
	TAILQ_REMOVE(&notices, n, link);
	LIST_REMOVE(n, same_hash);
	pending -= is_asked_for(n->kind);
	free(n->path);
	free(n);
}

static size_t
bucket_of(const char *path)
{
	return hash_add(HASH_START, path, strlen(path)) % BUCKETS;
}

static struct pending_tick *
find(enum tick_kind kind, const char *path, bool told)
{
	struct pending_tick *n;

	LIST_FOREACH (n, &by_path[bucket_of(path)], same_hash)
		if (n->kind == kind && n->told == told && strcmp(n->path, path) == 0)
			return n;
	return NULL;
}

size_t
ticks_pending(void)
{
	return pending;
}

void
ticks_stop(void)
{
	struct pending_tick *n;

	loop_timer_del(tick);
	loop_timer_del(again);
	tick = again = NULL;
	hang_up();
	while ((n = TAILQ_FIRST(&notices)))
		forget(n);
	buf_free(&out);
	free(agents);
	agents = NULL;
	agent_count = 0;
}

static void
tell(void *arg)
{
	struct pending_tick *n, *next;

	tick = NULL;
	if (pipe_fd < 0) /* the next watchdog is told, see replace() */
		return;
	for (n = TAILQ_FIRST(&notices); n; n = next) {
		next = TAILQ_NEXT(n, link);
		if (n->told)
			continue;
		buf_addf(&out, "%c %s%c", letters[n->kind], n->path, 0);
		n->told = true;
		/* a CREATE or DELETE stays until the watchdog's request removes it */
		if (!is_asked_for(n->kind))
			forget(n);
	}
	push();
}

void
ticks_path(enum tick_kind kind, const char *fmt, ...)
{
	struct buf path = {0};
	struct pending_tick *n;
	va_list ap;

	if (pipe_fd < 0 || !*device) /* nothing is mounted: there are no watchers */
		return;
	va_start(ap, fmt);
	buf_vaddf(&path, fmt, ap);
	va_end(ap);
	if (find(kind, path.p, false)) {
		buf_free(&path);
		return;
	}
	n = xcalloc(1, sizeof(*n));
	n->kind = kind;
	n->path = buf_take(&path);
	TAILQ_INSERT_TAIL(&notices, n, link);
	LIST_INSERT_HEAD(&by_path[bucket_of(n->path)], n, same_hash);
	pending += is_asked_for(kind);
	if (!tick)
		tick = loop_timer(daemon_.loop, TICK_MS, tell, NULL);
}

bool
ticks_expects(enum tick_kind kind, const char *path, bool done)
{
	struct pending_tick *n = find(kind, path, true);

	if (n && done)
		forget(n);
	return n != NULL;
}

void
ticks_forget(const char *fmt, ...)
{
	struct pending_tick *n, *next;
	struct buf dir = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&dir, fmt, ap);
	va_end(ap);
	for (n = TAILQ_FIRST(&notices); n; n = next) {
		next = TAILQ_NEXT(n, link);
		if (strncmp(n->path, dir.p, dir.n) == 0 && n->path[dir.n] == '/')
			forget(n);
	}
	buf_free(&dir);
}

/* Starts a new watchdog in place of one that has exited. */
static void
replace(void *arg)
{
	int r;

	again = NULL;
	r = ticks_start();
	if (r < 0) {
		note("cannot start another watchdog: %s", strerror(-r));
		again = loop_timer(daemon_.loop, AGAIN_MS, replace, NULL);
		return;
	}
	if (!tick && !TAILQ_EMPTY(&notices))
		tick = loop_timer(daemon_.loop, TICK_MS, tell, NULL);
}

bool
ticks_reaped(pid_t pid)
{
	struct pending_tick *n, *next;
	bool at_once = now_ns() - spawned > AGAIN_MS * NS_PER_MS;

	if (pid != watchdog || pid == 0)
		return false;
	watchdog = 0;
	hang_up();
	if (daemon_.ending)
		return true;
	note("the watchdog has ended: another one takes its place");
	/* drops what it was told to do but has not done */
	for (n = TAILQ_FIRST(&notices); n; n = next) {
		next = TAILQ_NEXT(n, link);
		if (n->told)
			forget(n);
	}
	if (at_once)
		replace(NULL);
	else if (!again)
		again = loop_timer(daemon_.loop, AGAIN_MS, replace, NULL);
	return true;
}
