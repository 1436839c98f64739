/*
 * Reaps processes that have exited, kills those that depend on them, and ends the agent: no
 * descendant outlives it.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "memory.h"
#include "signal_name.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINGER_MS = 100, LAST_WORDS = 16000, END_MS = 900, MIB_BITS = 20 };

/* Kept open: to kill must not need a free descriptor. */
static DIR *proc;

void
reap_each(process_fn *fn, void *arg)
{
	rewinddir(proc);
	for (struct dirent *d; (d = readdir(proc));) {
		pid_t pid = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : 0;

		if (pid)
			fn(pid, arg);
	}
}

static void
kill_child(pid_t pid, void *unused)
{
	siginfo_t si;

	if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0)
		kill(pid, SIGKILL);
}

/* The last lines of stderr that this engine wrote. */
static struct slice
last_words(struct engine *e, char bytes[LAST_WORDS])
{
	uint64_t size, n;
	ssize_t got;
	char *line;

	if (!e->output.spooled)
		return (struct slice){0};
	size = e->output.spool.at.size[SPOOL_STDERR];
	n = MIN(size - e->output.err_start, (uint64_t)LAST_WORDS);
	got = pread(e->output.spool.fd[SPOOL_STDERR], bytes, n, (off_t)(size - n));
	if (got <= 0)
		return (struct slice){0};
	/* only whole lines, if there is text before these bytes */
	line = n == LAST_WORDS ? memchr(bytes, '\n', (size_t)got) : NULL;
	if (line && line + 1 < bytes + got)
		return (struct slice){line + 1, (size_t)(bytes + got - line - 1)};
	return (struct slice){bytes, (size_t)got};
}

/* If it was killed: what may explain that. The caller owns it. */
static char *
want_of_memory(const struct engine *e)
{
	bool killed = WIFSIGNALED(e->status) && WTERMSIG(e->status) == SIGKILL;
	uint64_t n = killed ? memory_killed("") : 0, limit;
	struct buf b = {0};

	if (n > e->killed) {
		n -= e->killed;
		limit = memory_limit("");
		buf_addf(&b, "since it began, the out-of-memory killer has killed %llu process%s",
		    (unsigned long long)n, n == 1 ? "" : "es");
		buf_adds(&b, " of its memory cgroup");
		if (limit != UINT64_MAX)
			buf_addf(&b, " (limit %llu MiB)", (unsigned long long)limit >> MIB_BITS);
	}
	return b.p ? b.p : xstrdup("");
}

/* Everything that the engine sent has been forwarded: sends its Nexit, the last message. */
static void
finish(void *arg)
{
	struct engine *e = arg;
	struct spool_mark at;
	char bytes[LAST_WORDS], *memory = want_of_memory(e);

	e->output.linger = NULL;
	objects_ended(e);
	at = drain_mark(e);
	drain_say(e, &at, Nexit, (uint32_t)e->pid, (uint32_t)e->status, slice_text(memory),
	    last_words(e, bytes), at.size[SPOOL_STDOUT], at.size[SPOOL_STDERR],
	    at.size[SPOOL_DISPLAY], at.records);
	free(memory);
	away_end(e->output.away);
	e->output.away = NULL; /* it ends by itself */
	spawn_free(e);
}

void
reap_ended(struct engine *e, int status)
{
	e->status = status;
	e->state = ENGINE_ENDED;
	/* What it sent is read before its end is reported, but a process that inherited the socket
	 * must not hold us up. */
	if (e->conn)
		e->output.linger = loop_timer(agent.loop, LINGER_MS, finish, e);
	else
		finish(e);
}

void
reap_closed(struct engine *e)
{
	if (e->state == ENGINE_ENDED) {
		loop_timer_del(e->output.linger);
		finish(e);
	} else if (e->pid) {
		kill(e->pid, SIGKILL);
	}
}

static void
remember_unclaimed(pid_t pid, int status)
{
	unsigned i = agent.n_unclaimed++ % ARRAY_LEN(agent.unclaimed);

	agent.unclaimed[i].pid = pid;
	agent.unclaimed[i].status = status;
}

bool
reap_unclaimed(pid_t pid, int *status)
{
	for (unsigned i = 0; i < ARRAY_LEN(agent.unclaimed); i++) {
		if (agent.unclaimed[i].pid != pid)
			continue;
		agent.unclaimed[i].pid = 0;
		*status = agent.unclaimed[i].status;
		return kill(pid, 0) < 0 && errno == ESRCH; /* else the pid was reused */
	}
	return false;
}

static struct engine *
engine_of(pid_t pid)
{
	struct engine *e;

	TAILQ_FOREACH (e, &agent.engines, link) {
		if (e->pid == pid && e->state == ENGINE_RUNS)
			return e;
	}
	return NULL;
}

static void
on_child(void *arg, int signo)
{
	for (;;) {
		siginfo_t si = {0};
		struct engine *e;
		int status;

		/* Until we wait for it, its pid is not reused, and so identifies its session. */
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
			return;
		e = engine_of(si.si_pid);
		if (e)
			left_end(e);
		if (waitpid(si.si_pid, &status, WNOHANG) != si.si_pid)
			return;
		if (e)
			reap_ended(e, status);
		else if (!zygote_pool_reaped(si.si_pid, status))
			remember_unclaimed(si.si_pid, status);
	}
}

/* This host may soon be taken away; the daemon knows what to do. */
static void
on_preempt(void *arg, int signo)
{
	if (agent.greeted)
		conn_send(agent.up, Npreempted, 0, SLOT_AGENT, 0, -1, (uint32_t)signo);
}

static void
on_term(void *arg, int signo)
{
	if (!zygote_pool_spares(signo))
		reap_all(0);
	on_preempt(arg, signo);
}

static void
on_ignored(void *arg, int signo)
{
	debug("agent", "signal %d is not for the agent", signo);
}

void
reap_start(void)
{
	proc = opendir("/proc");
	if (!proc)
		die("/proc: %s", strerror(errno));
	loop_signal(agent.loop, SIGCHLD, on_child, NULL);
	for (const int *signo = signal_preempts; *signo; signo++)
		loop_signal(agent.loop, *signo, on_preempt, NULL);
	loop_signal(agent.loop, SIGTERM, on_term, NULL);
	/* The signals of a terminal are for the daemon: we see their effect as EOF. */
	loop_signal(agent.loop, SIGINT, on_ignored, NULL);
	loop_signal(agent.loop, SIGHUP, on_ignored, NULL);
	loop_signal(agent.loop, SIGQUIT, on_ignored, NULL);
}

/* Reaps all children that have exited. Returns false if there are no children left. */
static bool
reap_some(void)
{
	pid_t pid;

	do
		pid = waitpid(-1, NULL, WNOHANG);
	while (pid > 0);
	return pid == 0;
}

void
reap_all(int status)
{
	uint64_t end = now_ns() + END_MS * 1000000ull;
	const struct timespec slice = {.tv_nsec = 20000000};
	struct engine *e;
	sigset_t child;

	TAILQ_FOREACH (e, &agent.engines, link) {
		drain_mark(e);
		if (e->pid && e->state == ENGINE_RUNS)
			left_end(e);
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	do {
		/* Orphans of the processes we kill become our children: look again after each
		 * death. */
		reap_each(kill_child, NULL);
		if (!reap_some())
			exit(status);
		sigtimedwait(&child, NULL, &slice);
	} while (now_ns() < end);
	note("some processes could not be killed in %d ms", END_MS);
	exit(1);
}
