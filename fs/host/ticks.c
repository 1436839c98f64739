/* The daemon's side of the watchdog: a dirty set of paths, told over a pipe at most each TICK_MS.
 */
#include "host/ticks.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/group.h"
#include "object/varname.h"
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

enum { TICK_MS = 10 };

struct pending_tick {
	enum tick_kind kind;
	bool told; /* CREATE, DELETE: the watchdog is at it */
	char *path;
	TAILQ_ENTRY(pending_tick) link;
};

static TAILQ_HEAD(, pending_tick) notices = TAILQ_HEAD_INITIALIZER(notices);
static const char letters[TICK_KINDS] = {'m', 'w', 'c', 'd'};
static int pipe_fd = -1;
static pid_t watchdog;
static struct timer *tick;
static struct watch *room;
static struct buf out;

int
ticks_start(const char *self, const char *mountpoint, int log)
{
	char *argv[] = {xstrdup("ddipfs"), xstrdup("--watchdog"), xstrdup(mountpoint), NULL};
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
	posix_spawn_file_actions_adddup2(&files, log, 2);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
	r = fault("watchdog.spawn", EAGAIN)
		? EAGAIN
		: posix_spawn(&watchdog, self, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	for (int i = 0; argv[i]; i++)
		free(argv[i]);
	close(ends[0]);
	pipe_fd = ends[1];
	fd_nonblock(pipe_fd, true);
	return -r;
}

pid_t
ticks_watchdog(void)
{
	return watchdog;
}

static void push(void);

static void
on_room(void *arg, uint32_t events)
{
	loop_fd_del(room);
	room = NULL;
	push();
}

/* Sends what is queued; what does not fit goes when there is room. */
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
			if (!room)
				room = loop_fd(daemon_.loop, pipe_fd, EPOLLOUT, on_room, NULL);
			return;
		}
		if (n < 0 && errno == EINTR)
			continue;
		note(
		    "the watchdog is gone: no inotify events any more, and nobody unmounts after a "
		    "crash");
		close(pipe_fd);
		pipe_fd = -1;
		buf_clear(&out);
	}
}

static void
say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&out, fmt, ap);
	va_end(ap);
	push();
}

void
ticks_mounted(unsigned major, unsigned minor)
{
	say("dev %u:%u\n", major, minor);
}

void
ticks_agent(pid_t pid)
{
	say("agent %d\n", (int)pid);
}

void
ticks_stop(void)
{
	struct pending_tick *n;

	loop_timer_del(tick);
	loop_fd_del(room);
	tick = NULL;
	room = NULL;
	if (pipe_fd >= 0)
		close(pipe_fd);
	pipe_fd = -1;
	while ((n = TAILQ_FIRST(&notices))) {
		TAILQ_REMOVE(&notices, n, link);
		free(n->path);
		free(n);
	}
	buf_free(&out);
}

static void
forget(struct pending_tick *n)
{
	TAILQ_REMOVE(&notices, n, link);
	free(n->path);
	free(n);
}

static void
tell(void *arg)
{
	struct pending_tick *n, *next;

	tick = NULL;
	for (n = TAILQ_FIRST(&notices); n; n = next) {
		next = TAILQ_NEXT(n, link);
		if (n->told)
			continue;
		buf_addf(&out, "%c %s\n", letters[n->kind], n->path);
		n->told = true;
		/* those that the watchdog's own request takes off stay until then */
		if (n->kind == TICK_MODIFY || n->kind == TICK_CLOSE)
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

	if (pipe_fd < 0)
		return;
	va_start(ap, fmt);
	buf_vaddf(&path, fmt, ap);
	va_end(ap);
	TAILQ_FOREACH (n, &notices, link)
		if (n->kind == kind && !n->told && strcmp(n->path, path.p) == 0)
			break;
	if (n) {
		buf_free(&path);
		return;
	}
	n = xcalloc(1, sizeof(*n));
	n->kind = kind;
	n->path = buf_take(&path);
	TAILQ_INSERT_TAIL(&notices, n, link);
	if (!tick)
		tick = loop_timer(daemon_.loop, TICK_MS, tell, NULL);
}

bool
ticks_expects(enum tick_kind kind, const char *path, bool done)
{
	struct pending_tick *n;

	TAILQ_FOREACH (n, &notices, link)
		if (n->kind == kind && n->told && strcmp(n->path, path) == 0)
			break;
	if (n && done)
		forget(n);
	return n != NULL;
}

/* Names of a table that are not in the other. */
static void
differences(const char *a, const char *b, enum tick_kind kind, const char *dir)
{
	char name[256];

	for (size_t i = 0; var_name_at(a, i, name, sizeof(name)); i++)
		if (!var_row(b, name).p)
			ticks_path(kind, "%s/%s", dir, name);
}

void
ticks_table(struct group *g, int rank, const char *old, const char *new)
{
	char dir[128];

	snprintf(dir, sizeof(dir), "%s/rank%d/vars", g->name, rank);
	differences(new, old, TICK_CREATE, dir);
	differences(old, new, TICK_DELETE, dir);
	if (rank != external_first(g))
		return;
	snprintf(dir, sizeof(dir), "%s/vars", g->name);
	differences(new, old, TICK_CREATE, dir);
	differences(old, new, TICK_DELETE, dir);
}
