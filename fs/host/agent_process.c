/* Starts the processes that are agents or lead to them. */
#include "host/agent_process.h"
#include "base/daemon.h"
#include "host/launcher.h"
#include "lineage.h"
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Starts a program with a socket as its standard input and output. Returns our end of it, or
 * -errno. */
static int
start(char **argv, pid_t *pid, struct err *e)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int pair[2], r;

	if (fault("agent.socketpair", EMFILE) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_errno(e, "agent: socketpair");
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, pair[1], 0);
	posix_spawn_file_actions_adddup2(&files, pair[1], 1);
	posix_spawn_file_actions_adddup2(&files, daemon_.log_fd, STDERR_FILENO);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(
	    &attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	r = fault("agent.spawn", EAGAIN)
		? EAGAIN
		: posix_spawn(pid, daemon_.engine, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	close(pair[1]);
	if (r != 0) {
		close(pair[0]);
		return fail(
		    e, r, "%s: %s (is ddipfs installed completely?)", daemon_.engine, strerror(r));
	}
	return pair[0];
}

/* Starts an agent on this machine. */
static int
start_here(struct agent_process *p, struct err *e)
{
	char *argv[] = {daemon_.engine, (char[]){"--agent"}, NULL};
	int fd = start(argv, &p->pid, e);

	if (fd >= 0)
		p->lineage = lineage_begin(p->pid);
	return fd;
}

/* Starts the relay to an agent on another host. To the daemon it looks like the agent. */
static int
start_relay(const struct agent_spec *s, pid_t *pid, struct err *e)
{
	char **command = launcher_argv(s->launcher, s->host), *linger = xasprintf("%g", s->linger);
	const char *direct = launcher_direct(s->launcher);
	const char *const options[] = {daemon_.engine, "relay", "--host", s->host, "--linger",
	    linger, "--engine", *s->engine ? s->engine : "auto", direct ? "--direct" : "--",
	    direct ? direct : NULL, "--"};
	size_t n = 0, n_options = ARRAY_LEN(options) - (direct ? 0 : 2);
	char **argv;
	int fd;

	while (command[n])
		n++;
	argv = xcalloc(n_options + n + 1, sizeof(*argv));
	memcpy(argv, options, n_options * sizeof(*argv));
	memcpy(argv + n_options, command, n * sizeof(*command));
	fd = start(argv, pid, e);
	free(argv);
	free(linger);
	launcher_free(command);
	return fd;
}

bool
agent_process_is_here(const struct agent_spec *s)
{
	return !*s->host || strcmp(s->launcher, LAUNCHER_HERE) == 0;
}

int
agent_process_start(const struct agent_spec *s, struct agent_process *p, struct err *e)
{
	*p = (struct agent_process){0};
	return agent_process_is_here(s) ? start_here(p, e) : start_relay(s, &p->pid, e);
}
