/*
 * The children of the fake agent: one process per engine, which lives and dies, uses files on
 * request, and does nothing else.
 */
#include "fake.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_OF_STDERR = 200 };

/* Writes text to a file, or reads it if there is no text. Returns the errno that a cell using the
 * mount would get. */
static int
use(char *path)
{
	char *what = strchr(path, ' ');
	int fd, r = 0;

	if (what)
		*what++ = '\0';
	fd = open(path, what ? O_WRONLY : O_RDONLY);
	if (fd < 0)
		return errno;
	if (what && write(fd, what, strlen(what)) < 0)
		r = errno;
	if (!what && read(fd, (char[4096]){0}, 4096) < 0)
		r = errno;
	if (close(fd) < 0)
		r = errno;
	return r;
}

/* The process of a rank: lives until it is told to exit, or the agent is gone. */
static _Noreturn void
child_main(int in, int out)
{
	char line[4096];
	FILE *f = fdopen(in, "r");
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "exit ", 5) == 0)
			_exit(atoi(line + 5));
		if (strncmp(line, "use ", 4) == 0) {
			int no = use(line + 4);

			dprintf(out, "%s\n", err_name(no));
		}
	}
	_exit(0);
}

void
child_order(struct engine *e, const char *line)
{
	(void)!write(e->child.orders, line, strlen(line));
}

static void
on_answer(void *arg, uint32_t events)
{
	struct engine *e = arg;
	char line[256];
	ssize_t n = read(e->child.answers, line, sizeof(line) - 1);

	if (n <= 0) {
		loop_fd_del(e->child.watch);
		e->child.watch = NULL;
		return;
	}
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	words_answer(e, line);
}

void
child_fork(struct engine *e)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 || (e->child.pid = fork()) < 0)
		die("a rank: %s", strerror(errno));
	if (e->child.pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close_range(3, ~0u, 0);
		child_main(0, 1);
	}
	close(to[0]);
	close(from[1]);
	e->child.orders = to[1];
	e->child.answers = from[0];
	e->child.watch = loop_fd(loop, e->child.answers, EPOLLIN, on_answer, e);
}

static void
ended(struct engine *e, int status)
{
	struct spool_mark at = {0};
	char words[WORDS_OF_STDERR];
	ssize_t n = 0;

	words_end(e);
	e->child.dead = true;
	if (e->spooled) {
		uint64_t size = e->spool.at.size[SPOOL_STDERR],
			 from = size - MIN(size, sizeof(words));

		at = spool_writer_cut(&e->spool);
		n = pread(e->spool.fd[SPOOL_STDERR], words, sizeof(words), (off_t)from);
	}
	engine_say(e, Nexit, 0, 0, (uint32_t)e->child.pid, (uint32_t)status, slice_text(""),
	    ((struct slice){words, (size_t)MAX(n, (ssize_t)0)}), at.size[0], at.size[1], at.size[2],
	    at.records);
	engine_gone(e);
}

void
child_ended(void *arg, int signo)
{
	struct engine *e, *next;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (e = TAILQ_FIRST(&engines); e; e = next) {
			next = TAILQ_NEXT(e, link);
			if (e->child.pid == pid && !e->child.dead)
				ended(e, status);
		}
}
