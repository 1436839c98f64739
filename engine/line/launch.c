/* Starts the command that leads to a host, and reads its lines until its streams become a line. */
#define _GNU_SOURCE
#include "line/launch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	WORDS_MAX = 600,      /* bytes that are kept of its standard error, and of its noise */
	LINES_MAX = 64 << 10, /* an incomplete line that is longer is discarded */
	READ_SIZE = 4096,
	READS_MAX = 64, /* in a row: it may never stop writing */
	END_MS = 1000,	/* for it to exit on SIGHUP; then SIGKILL */
	END_LOOK_MS = 10
};

struct launch {
	struct loop *loop;
	const struct launch_ops *ops;
	void *arg;
	char *name;
	pid_t pid;
	int pidfd, in, out, err;
	struct watch *pid_watch, *in_watch, *out_watch, *err_watch;
	struct buf to_write, lines, noise, words;
	size_t written;
	bool taken, freed, busy;
};

static void
unwatch(struct watch **w)
{
	loop_fd_del(*w);
	*w = NULL;
}

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void
destroy(struct launch *la)
{
	buf_free(&la->to_write);
	buf_free(&la->lines);
	buf_free(&la->noise);
	buf_free(&la->words);
	free(la->name);
	free(la);
}

void
launch_end(struct launch *la)
{
	if (!la)
		return;
	unwatch(&la->pid_watch);
	unwatch(&la->in_watch);
	unwatch(&la->out_watch);
	unwatch(&la->err_watch);
	if (!la->taken) {
		close_fd(&la->in);
		close_fd(&la->out);
	}
	close_fd(&la->err);
	close_fd(&la->pidfd);
	/* its connection is over, as when a terminal hangs up; SIGTERM would mean that the cluster
	 * ends the session, if the command runs on this host or passes signals on */
	if (la->pid)
		kill(-la->pid, SIGHUP);
	for (int ms = 0; la->pid && waitpid(la->pid, NULL, WNOHANG) == 0; ms += END_LOOK_MS) {
		if (ms >= END_MS)
			kill(-la->pid, SIGKILL);
		usleep(END_LOOK_MS * 1000);
	}
	la->pid = 0;
	la->freed = true;
	if (!la->busy)
		destroy(la);
}

static void
read_words(struct launch *la)
{
	ssize_t n = 1;

	for (int i = 0; n > 0 && i < READS_MAX; i++) {
		n = read(la->err, buf_reserve(&la->words, READ_SIZE), READ_SIZE);
		if (n > 0)
			la->words.n += (size_t)n;
		if (la->words.n > WORDS_MAX)
			buf_drop(&la->words, la->words.n - WORDS_MAX);
	}
	if (n == 0)
		unwatch(&la->err_watch);
}

/* Appends to b, of which only the end is kept. */
static void
keep_words(struct buf *b, const char *p, size_t n)
{
	buf_add(b, p, n);
	if (b->n > WORDS_MAX)
		buf_drop(b, b->n - WORDS_MAX);
}

void
launch_noise(struct launch *la, const char *line)
{
	keep_words(&la->noise, line, strlen(line));
	keep_words(&la->noise, "\n", 1);
}

struct slice
launch_words(struct launch *la)
{
	size_t n;

	if (la->err_watch)
		read_words(la);
	/* other lines that it printed, and text without a newline, such as a prompt */
	if (!la->taken) {
		keep_words(&la->noise, la->lines.p, la->lines.n);
		keep_words(&la->words, la->noise.p, la->noise.n);
		buf_clear(&la->noise);
		buf_clear(&la->lines);
	}
	n = la->words.n;
	while (n && strchr("\r\n ", la->words.p[n - 1]))
		n--;
	return (struct slice){la->words.p, n};
}

static void
on_words(void *arg, uint32_t events)
{
	read_words(arg);
}

/* ---- its standard input ---- */

static void on_room(void *arg, uint32_t events);

static void
write_some(struct launch *la)
{
	while (la->written < la->to_write.n) {
		ssize_t w =
		    write(la->in, la->to_write.p + la->written, la->to_write.n - la->written);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN && !la->in_watch)
			la->in_watch = loop_fd(la->loop, la->in, EPOLLOUT, on_room, la);
		if (w < 0 && errno == EAGAIN)
			return;
		if (w < 0)
			break; /* it is exiting, and says why */
		la->written += (size_t)w;
	}
	unwatch(&la->in_watch);
	buf_clear(&la->to_write);
	la->written = 0;
}

static void
on_room(void *arg, uint32_t events)
{
	write_some(arg);
}

void
launch_write(struct launch *la, const void *p, size_t n)
{
	buf_add(&la->to_write, p, n);
	write_some(la);
}

/* ---- its lines ---- */

static void
take_lines(struct launch *la)
{
	char *end;

	la->busy = true;
	while (!la->freed && !la->taken && (end = memchr(la->lines.p, '\n', la->lines.n))) {
		size_t n = (size_t)(end - la->lines.p);
		char *line = xstrndup(la->lines.p, n);

		buf_drop(&la->lines, n + 1);
		if (n && line[n - 1] == '\r')
			line[n - 1] = '\0';
		la->ops->line(la->arg, line);
		free(line);
	}
	la->busy = false;
	if (!la->freed && la->lines.n > LINES_MAX && !la->taken)
		buf_clear(&la->lines);
}

/* Returns false if there is nothing more to read, or if la no longer owns its streams. */
static bool
read_lines(struct launch *la)
{
	ssize_t n = read(la->out, buf_reserve(&la->lines, READ_SIZE), READ_SIZE);

	if (n == 0)
		unwatch(&la->out_watch); /* its exit is what counts */
	if (n <= 0)
		return false;
	la->lines.n += (size_t)n;
	take_lines(la);
	return !la->freed && !la->taken;
}

static void
on_out(void *arg, uint32_t events)
{
	struct launch *la = arg;

	read_lines(la);
	if (la->freed)
		destroy(la);
}

void
launch_take(struct launch *la, int *rfd, int *wfd, struct slice *early)
{
	unwatch(&la->in_watch);
	unwatch(&la->out_watch);
	la->taken = true;
	*rfd = la->out;
	*wfd = la->in;
	*early = (struct slice){la->lines.p, la->lines.n};
}

/* ---- its end ---- */

static void
on_end(void *arg, uint32_t events)
{
	struct launch *la = arg;
	const struct launch_ops *ops = la->ops;
	void *whom = la->arg;
	struct slice words;
	struct err why;
	int status = 0;

	if (waitpid(la->pid, &status, WNOHANG) != la->pid)
		return;
	la->pid = 0;
	unwatch(&la->pid_watch);
	for (int i = 0; !la->taken && i < READS_MAX && read_lines(la); i++)
		;
	if (la->freed) {
		destroy(la);
		return;
	}
	if (la->taken)
		return; /* the line sees the end of its streams */
	words = launch_words(la);
	fail(&why, EHOSTDOWN, "%s ended with %s %d%s%.*s", la->name,
	    WIFSIGNALED(status) ? "signal" : "exit status",
	    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), words.n ? ": " : "",
	    (int)words.n, words.p);
	launch_end(la);
	ops->ended(whom, &why);
}

/* In the child. */
static _Noreturn void
become(char **argv, const int in[2], const int out[2], const int err[2])
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGHUP, SIG_DFL); /* nohup(1) ignores it */
	setsid();
	dup2(in[0], 0);
	dup2(out[1], 1);
	dup2(err[1], 2);
	execvp(argv[0], argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static char **
with_text(char **command, const char *text)
{
	size_t n = 0;
	char **argv;

	while (command[n])
		n++;
	argv = xcalloc(n + 2, sizeof(*argv));
	memcpy(argv, command, n * sizeof(*argv));
	argv[n] = (char *)(uintptr_t)text;
	return argv;
}

struct launch *
launch_start(struct loop *loop, char **command, const char *text, const struct launch_ops *ops,
    void *arg, struct err *e)
{
	struct launch *la = xcalloc(1, sizeof(*la));
	char **argv = with_text(command, text);
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};

	*la = (struct launch){.loop = loop, .ops = ops, .arg = arg, .name = xstrdup(command[0])};
	if (fault("launch.pipe", EMFILE) || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
	    pipe2(err, O_CLOEXEC) < 0)
		fail_errno(e, "pipe");
	la->pid = e->no ? -1 : fault("launch.fork", EAGAIN) ? -1 : fork();
	if (la->pid == 0)
		become(argv, in, out, err);
	if (la->pid < 0 && !e->no)
		fail_errno(e, "fork of %s", command[0]);
	free(argv);
	la->pidfd = la->pid > 0 ? (int)syscall(SYS_pidfd_open, la->pid, 0) : -1;
	if (!e->no && la->pidfd < 0)
		fail_errno(e, "pidfd_open");
	close_fd(&in[0]);
	close_fd(&out[1]);
	close_fd(&err[1]);
	la->in = in[1];
	la->out = out[0];
	la->err = err[0];
	la->pid = MAX(la->pid, 0);
	if (e->no) {
		launch_end(la);
		return NULL;
	}
	fd_cloexec(la->pidfd, true);
	fd_nonblock(la->in, true);
	fd_nonblock(la->out, true);
	fd_nonblock(la->err, true);
	la->pid_watch = loop_fd(loop, la->pidfd, EPOLLIN, on_end, la);
	la->out_watch = loop_fd(loop, la->out, EPOLLIN, on_out, la);
	la->err_watch = loop_fd(loop, la->err, EPOLLIN, on_words, la);
	return la;
}
