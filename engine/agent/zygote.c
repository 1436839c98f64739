/*
 * One zygote: a process that has loaded Python and torch, started by exec or forked by another
 * zygote; and what makes it stale. zygote_pool.c decides which zygotes exist, and for what.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "signal_name.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets the user's umask and limit in place of the daemon's. */
static void
take_users_limits(void)
{
	struct rlimit files;

	if (agent.user_umask >= 0)
		umask((mode_t)agent.user_umask);
	if (agent.user_files < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = MIN((rlim_t)agent.user_files, files.rlim_max);
	setrlimit(RLIMIT_NOFILE, &files);
}

/* Runs between fork and exec: only calls that need no lock. */
static void
become(const struct zygote_pool *pool, const char *role, int out, int err, char **env, pid_t parent)
{
	char self[] = "/proc/self/exe", program[] = "ddip-engine", option[16] = "--";
	char *argv[] = {program, option, pool->python, NULL};
	int null, spared = signal_on_preempt((struct slice){pool->env.p, pool->env.n});
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (spared)
		signal(spared, SIG_IGN);
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	dup2(err, 2);
	null = fault("zygote.null", EMFILE) ? -1 : open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0)
		die("descriptors of a %s: %s", role, strerror(errno));
	if (fault("zygote.cwd", EACCES) || chdir(pool->cwd) < 0)
		die("cwd %s: %s", pool->cwd, strerror(errno));
	take_users_limits();
	strncat(option, role, sizeof(option) - 3);
	if (!fault("zygote.exec", ENOMEM))
		execve(self, argv, env);
	die("%s: %s", self, strerror(errno));
}

pid_t
zygote_exec(const struct zygote_pool *pool, const char *role, int out, int err,
    const struct buf *env, struct err *e)
{
	pid_t us = getpid(), pid;
	char **all = env_overlay(env);

	pid = fault("zygote.fork", EAGAIN) ? -1 : fork();
	if (pid == 0) {
		become(pool, role, out, err, all, us);
		_exit(127);
	}
	free(all);
	return pid < 0 ? fail_start(e, "fork of a %s", role) : pid;
}

struct zygote *
zygote_new(
    struct zygote_pool *pool, conn_msg_fn *msg, conn_close_fn *closed, int *theirs, struct err *e)
{
	struct zygote *z;
	int pair[2];

	if (fault("zygote.socket", EMFILE) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		fail_errno(e, "zygote: socketpair");
		return NULL;
	}
	z = xcalloc(1, sizeof(*z));
	*z = (struct zygote){.pool = pool};
	z->conn = conn_new(agent.loop, pair[0], pair[0], msg, closed, z);
	TAILQ_INSERT_TAIL(&agent.zygotes, z, link);
	*theirs = pair[1];
	return z;
}

void
zygote_free(struct zygote *z)
{
	struct zygote_pool *pool = z->pool;

	if (z->pid)
		kill(z->pid, SIGKILL);
	if (pool && pool->now == z)
		pool->now = NULL;
	if (pool && pool->next == z)
		pool->next = NULL;
	TAILQ_REMOVE(&agent.zygotes, z, link);
	conn_free(z->conn);
	free(z->paths);
	free(z->ages);
	free(z);
}

void
zygote_remember_ages(struct zygote *z, struct slice paths)
{
	z->paths = xmalloc(paths.n + 2);
	memcpy(z->paths, paths.p, paths.n);
	memset(z->paths + paths.n, 0, 2);
	for (const char *p = z->paths; *p; p += strlen(p) + 1)
		z->n_paths++;
	z->ages = xcalloc(z->n_paths + 1, sizeof(*z->ages));
	z->n_paths = 0;
	for (const char *p = z->paths; *p; p += strlen(p) + 1) {
		struct stat st = {0};

		if (stat(p, &st) < 0)
			debug("agent", "%s: %s", p, strerror(errno));
		z->ages[z->n_paths++] = st.st_mtim;
	}
}

bool
zygote_is_stale(const struct zygote *z)
{
	const struct zygote_pool *pool = z->pool;
	struct stat cwd;
	size_t i = 0;

	/* if it is gone, programs can still run, each in its caller's directory */
	if (stat(pool->cwd, &cwd) == 0 &&
	    (cwd.st_dev != pool->cwd_dev || cwd.st_ino != pool->cwd_ino))
		return true;
	for (const char *p = z->paths; p && *p; p += strlen(p) + 1, i++) {
		struct stat st = {0};

		if (stat(p, &st) < 0)
			debug("agent", "%s: %s", p, strerror(errno));
		if (st.st_mtim.tv_sec != z->ages[i].tv_sec ||
		    st.st_mtim.tv_nsec != z->ages[i].tv_nsec)
			return true;
	}
	return false;
}

struct zygote *
zygote_of_tag(uint64_t tag)
{
	struct zygote *z;

	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->tag == tag)
			return z;
	}
	return NULL;
}

void
zygote_handed_over(struct zygote *z)
{
	z->pid = 0;
	z->pool = NULL;
	z->retired = true;
}
