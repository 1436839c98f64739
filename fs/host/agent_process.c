/* Starts the processes that are agents or lead to them. */
#include "host/agent_process.h"
#include "base/daemon.h"
#include "host/launcher.h"
#include "lineage.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ABOVE = 10 }; /* their ends of sockets, away from where they shall be */

void
agent_sockets_close(struct agent_sockets *s)
{
	for (int i = 0; i < LANES; i++)
		if (s->lanes[i] >= 0)
			close(s->lanes[i]);
	if (s->words >= 0)
		close(s->words);
	*s = (struct agent_sockets){.lanes = {-1, -1, -1}, .words = -1};
}

/* Makes a socket whose other end the program has at this descriptor. Returns -errno with *e set on
 * failure. */
static int
give_socket(
    posix_spawn_file_actions_t *files, int type, int at, int *ours, int *theirs, struct err *e)
{
	int pair[2];

	if (fault("agent.socketpair", EMFILE) ||
	    socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_errno(e, "agent: socketpair");
	*ours = pair[0];
	*theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, ABOVE);
	if (*theirs < 0)
		fail_errno(e, "agent: a socket");
	close(pair[1]);
	posix_spawn_file_actions_adddup2(files, *theirs, at);
	return -e->no;
}

/* Starts a program with one socket as its standard input and output, or with those of a relay. */
static int
start(char **argv, bool is_relay, struct agent_sockets *ours, pid_t *pid, struct err *e)
{
	struct agent_sockets theirs = {.lanes = {-1, -1, -1}, .words = -1};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r = 0;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	give_socket(&files, SOCK_STREAM, 0, &ours->lanes[0], &theirs.lanes[0], e);
	for (int i = LANE_CONTROL + 1; is_relay && i < LANES && !e->no; i++)
		give_socket(&files, SOCK_STREAM, LANE_FD + i, &ours->lanes[i], &theirs.lanes[i], e);
	if (is_relay && !e->no)
		give_socket(&files, SOCK_SEQPACKET, 1, &ours->words, &theirs.words, e);
	else if (!e->no)
		posix_spawn_file_actions_adddup2(&files, theirs.lanes[0], 1);
	posix_spawn_file_actions_adddup2(&files, daemon_.log_fd, STDERR_FILENO);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(
	    &attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	if (!e->no)
		r = fault("agent.spawn", EAGAIN)
			? EAGAIN
			: posix_spawn(pid, daemon_.engine, &files, &attr, argv, environ);
	if (r != 0)
		fail(e, r, "%s: %s (is ddipfs installed completely?)", daemon_.engine, strerror(r));
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	agent_sockets_close(&theirs);
	if (e->no)
		agent_sockets_close(ours);
	return -e->no;
}

/* Starts an agent on this machine. */
static int
start_here(struct agent_process *p, struct agent_sockets *ours, struct err *e)
{
	char *argv[] = {daemon_.engine, (char[]){"--agent"}, NULL};

	if (start(argv, false, ours, &p->pid, e) < 0)
		return -e->no;
	p->lineage = lineage_begin(p->pid);
	return 0;
}

/* Starts the relay to an agent on another host. */
static int
start_relay(const struct agent_spec *s, struct agent_sockets *ours, pid_t *pid, struct err *e)
{
	char **command = launcher_argv(s->launcher, s->host), *linger = xasprintf("%g", s->linger);
	const char *direct = launcher_direct(s->launcher);
	const char *const options[] = {daemon_.engine, "relay", "--host", s->host, "--linger",
	    linger, "--engine", *s->engine ? s->engine : "auto", direct ? "--direct" : "--",
	    direct ? direct : NULL, "--"};
	size_t n = 0, n_options = ARRAY_LEN(options) - (direct ? 0 : 2);
	char **argv;

	while (command[n])
		n++;
	argv = xcalloc(n_options + n + 1, sizeof(*argv));
	memcpy(argv, options, n_options * sizeof(*argv));
	memcpy(argv + n_options, command, n * sizeof(*command));
	start(argv, true, ours, pid, e);
	free(argv);
	free(linger);
	launcher_free(command);
	return -e->no;
}

bool
agent_process_is_here(const struct agent_spec *s)
{
	return !*s->host || strcmp(s->launcher, LAUNCHER_HERE) == 0;
}

int
agent_process_start(
    const struct agent_spec *s, struct agent_process *p, struct agent_sockets *ours, struct err *e)
{
	*e = (struct err){0};
	*p = (struct agent_process){0};
	*ours = (struct agent_sockets){.lanes = {-1, -1, -1}, .words = -1};
	return agent_process_is_here(s) ? start_here(p, ours, e) : start_relay(s, ours, &p->pid, e);
}
