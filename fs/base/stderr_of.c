/*
 * Writes lines to the standard error of other processes, on a thread for each line.
 *
 * A pipe or a terminal is opened anew, with O_NONBLOCK of our own: the flag of a duplicate would be
 * the writer's as well. A file is written to through a duplicate, whose offset is the writer's,
 * and which is taken at once, since the writer may have ended when there is something to say; where
 * the kernel grants none, at its end. A socket cannot be opened: only a duplicate will do.
 *
 * A duplicate may block although poll(2) has seen room, which another process has taken since, or
 * which is too little for the line. A thread that takes too long is interrupted by a signal.
 */
#include "base/stderr_of.h"
#include "base/daemon.h"
#include "proc.h"
#include "thread.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum {
	FULL_MS = 100,	   /* how long a full pipe or terminal may take to have room */
	PATIENCE_MS = 200, /* how long somebody waits for a line to be written */
	JOBS_MAX = 32,	   /* lines being written; more are lost */
	LINK_BYTES = 40,
	/* majors of devices that are terminals whoever opens them */
	VIRTUAL_CONSOLES = 4,
	PTYS_FIRST = 136,
	PTYS_LAST = 143
};

struct stderr_of {
	int refs;
	int fd; /* O_PATH, except of a file: a duplicate, if there is one */
	pid_t tid;
	bool is_duplicate;
	bool ours; /* its process is of our user, so opening it anew gives nobody more rights */
};

struct job {
	struct stderr_of *to;
	pid_t closer;
	char *text;
	size_t n;
	void (*done)(void *arg);
	void *arg;
	struct timer *patience;
	pthread_t thread;
	bool ended; /* the thread has; protected by lock */
	struct loop_call over;
	TAILQ_ENTRY(job) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, job) jobs = TAILQ_HEAD_INITIALIZER(jobs);
static int job_count;
static bool stopped; /* threads report to the loop no more; protected by lock */

static bool
look(int fd, struct statx *stx)
{
	/* asks no server */
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, stx) == 0;
}

/* A duplicate of the process's standard error, if that is still the same file. */
static int
duplicate_by(int pidfd, const struct statx *want)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
	struct statx stx;

	if (fd < 0 || (look(fd, &stx) && stx.stx_ino == want->stx_ino &&
			  stx.stx_dev_major == want->stx_dev_major &&
			  stx.stx_dev_minor == want->stx_dev_minor &&
			  (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY))
		return fd;
	close(fd);
	return -1;
}

static int
duplicate_of(pid_t tid, const struct statx *want)
{
	struct proc_status status;
	int pidfd, fd;

	pidfd = (int)syscall(SYS_pidfd_open, tid, 0); /* works if it is the main thread */
	if (pidfd < 0 && proc_status(tid, &status) == 0)
		pidfd = (int)syscall(SYS_pidfd_open, status.process, 0);
	if (pidfd < 0)
		return -1;
	fd = duplicate_by(pidfd, want);
	close(pidfd);
	return fd;
}

/* On this mount, the line could be the source of a cell. */
static bool
is_on_mount(const struct statx *stx)
{
	return makedev(stx->stx_dev_major, stx->stx_dev_minor) == daemon_.device;
}

/* A file, to which a line is written through a duplicate. */
static bool
is_file(const struct statx *stx)
{
	return S_ISREG(stx->stx_mode) && !is_on_mount(stx);
}

static struct stderr_of *
find(pid_t tid)
{
	char link[LINK_BYTES];
	struct stderr_of *s;
	struct statx stx;
	struct stat st;
	int fd, copy;

	if (tid == 0)
		return NULL;
	snprintf(link, sizeof(link), "/proc/%d/fd/2", (int)tid);
	fd = open(link, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	/* the link shows how the process has opened it, and whose process it is */
	if (fstatat(AT_FDCWD, link, &st, AT_SYMLINK_NOFOLLOW) < 0 || !(st.st_mode & S_IWUSR)) {
		close(fd);
		return NULL;
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct stderr_of){.refs = 1, .fd = fd, .tid = tid, .ours = st.st_uid == geteuid()};
	if (look(fd, &stx) && is_file(&stx) && (copy = duplicate_of(tid, &stx)) >= 0) {
		close(fd);
		s->fd = copy;
		s->is_duplicate = true;
	}
	return s;
}

/* Who was looked for last, on the loop's thread, and had a file; once it has come twice, its pidfd,
 * or -1: then it needs a few calls less. */
static struct {
	pid_t pid;
	int pidfd;
} last = {.pidfd = -1};

static void
remember(pid_t tid)
{
	bool again = tid && tid == last.pid;

	if (last.pidfd >= 0)
		close(last.pidfd);
	last.pid = tid;
	last.pidfd = again ? (int)syscall(SYS_pidfd_open, tid, 0) : -1;
}

/* The standard error of the last one; NULL if it is no file now. It is looked at before there is a
 * duplicate: to close one of a file of this mount waits for this thread. */
static struct stderr_of *
find_again(void)
{
	char link[LINK_BYTES];
	struct stderr_of *s;
	struct statx stx;
	int fd;

	snprintf(link, sizeof(link), "/proc/%d/fd/2", (int)last.pid);
	if (statx(AT_FDCWD, link, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &stx) < 0 ||
	    !is_file(&stx) || (fd = duplicate_by(last.pidfd, &stx)) < 0)
		return NULL;
	s = xcalloc(1, sizeof(*s));
	*s = (struct stderr_of){.refs = 1, .fd = fd, .tid = last.pid, .is_duplicate = true};
	return s;
}

struct stderr_of *
stderr_of_thread(pid_t tid)
{
	struct stderr_of *s = tid && tid == last.pid && last.pidfd >= 0 ? find_again() : NULL;

	if (!s) {
		s = find(tid);
		remember(s && s->is_duplicate ? tid : 0);
	}
	return s;
}

struct stderr_of *
stderr_of_ref(struct stderr_of *s)
{
	s->refs++;
	return s;
}

void
stderr_of_unref(struct stderr_of *s)
{
	if (!s || --s->refs > 0)
		return;
	close(s->fd);
	free(s);
}

/* ---- programs that report errors of close(2) ---- */

static bool
is_in(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* Does the program of this process print a message if close(2) fails? If it is not known to, it
 * is told: it might be told twice, but never left in ignorance. By its executable, since others
 * go by the same names: the tools that are written in Rust report nothing. */
static bool
reports(pid_t pid)
{
	static const char *const tools[] = {"awk", "base64", "cat", "comm", "cp", "csplit", "cut",
	    "date", "dd", "df", "diff", "du", "echo", "egrep", "env", "expand", "fgrep", "find",
	    "fold", "gawk", "grep", "gzip", "head", "id", "install", "join", "jq", "ls", "mawk",
	    "mv", "nl", "node", "od", "paste", "printf", "rsync", "script", "sed", "seq",
	    "sha256sum", "shuf", "sort", "split", "stat", "tac", "tail", "tar", "tee", "tr", "uniq",
	    "wc", "fish", "yash", "sftp-server", "sshd", "sshd-session"};
	static const char *const applets[] = {"cat", "cp", "dd", "tee"};
	char link[LINK_BYTES], path[PATH_MAX];
	struct proc_status s;
	const char *name;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (strcmp(name, "busybox") == 0)
		return proc_status(pid, &s) == 0 && is_in(applets, ARRAY_LEN(applets), s.name);
	return is_in(tools, ARRAY_LEN(tools), name);
}

/* ---- on the thread ---- */

static int
reopen(const struct stderr_of *s, int flags)
{
	char link[LINK_BYTES];

	if (!s->ours) {
		errno = EACCES;
		return -1;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", s->fd);
	return open(link, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
}

/* The writer may have ended; the closer has its standard error, or another. */
static int
duplicate(const struct job *j, const struct statx *want)
{
	int fd = duplicate_of(j->to->tid, want);

	return fd >= 0 ? fd : duplicate_of(j->closer, want);
}

static int
open_pipe(const struct job *j, const struct statx *stx)
{
	int fd = reopen(j->to, 0);

	/* a pipe or a terminal of the user who called su(1) cannot be opened */
	return fd >= 0 || errno == ENXIO ? fd : duplicate(j, stx);
}

/* Opening any other device could have an effect. */
static int
open_device(const struct job *j, const struct statx *stx)
{
	bool tty = stx->stx_rdev_major == VIRTUAL_CONSOLES ||
		   (stx->stx_rdev_major >= PTYS_FIRST && stx->stx_rdev_major <= PTYS_LAST);
	int fd = tty ? open_pipe(j, stx) : duplicate(j, stx);

	if (fd < 0 || isatty(fd))
		return fd;
	close(fd);
	return -1;
}

static int
open_file(const struct job *j, const struct statx *stx)
{
	int fd = j->to->is_duplicate ? fcntl(j->to->fd, F_DUPFD_CLOEXEC, 0) : duplicate(j, stx);

	return fd >= 0 ? fd : reopen(j->to, O_APPEND);
}

static int
open_stderr(const struct job *j, const struct statx *stx)
{
	if (is_on_mount(stx))
		return -1;
	switch (stx->stx_mode & S_IFMT) {
	case S_IFIFO:
		return open_pipe(j, stx);
	case S_IFCHR:
		return open_device(j, stx);
	case S_IFREG:
		return open_file(j, stx);
	case S_IFSOCK:
		return duplicate(j, stx);
	default:
		return -1;
	}
}

static void
write_line(const struct job *j)
{
	struct pollfd p = {.events = POLLOUT};
	struct statx stx;
	ssize_t n = 0;

	if (!look(j->to->fd, &stx))
		return;
	p.fd = open_stderr(j, &stx);
	if (p.fd < 0)
		return;
	/* a duplicate may be one that blocks: no more is written than there is room for */
	if (poll(&p, 1, FULL_MS) > 0 && S_ISSOCK(stx.stx_mode))
		n = send(p.fd, j->text, j->n, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (p.revents & POLLOUT)
		n = write(p.fd, j->text, j->n);
	if (n < 0)
		debug("fuse", "the standard error of a writer: %s", strerror(errno));
	close(p.fd);
}

static void
interrupted(int sig)
{
}

static void *
run(void *arg)
{
	struct job *j = arg;
	sigset_t set;

	prctl(PR_SET_NAME, "ddipfs-tell");
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	if (!j->closer || !reports(j->closer)) {
		/* nothing was written: the closer is all that is known */
		if (!j->to)
			j->to = find(j->closer);
		if (j->to)
			write_line(j);
	}
	pthread_mutex_lock(&lock);
	j->ended = true;
	if (!stopped)
		loop_post(daemon_.loop, &j->over);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- on the loop ---- */

static void
tell_done(struct job *j)
{
	void (*done)(void *arg) = j->done;

	loop_timer_del(j->patience);
	j->patience = NULL;
	j->done = NULL;
	if (done)
		done(j->arg);
}

static void
on_patience(void *arg)
{
	struct job *j = arg;

	j->patience = NULL;
	debug("fuse", "the standard error of a writer takes too long");
	tell_done(j);
	pthread_mutex_lock(&lock);
	if (!j->ended)
		pthread_kill(j->thread, SIGRTMIN);
	pthread_mutex_unlock(&lock);
	/* again, as the signal may have come before the call that blocks */
	j->patience = loop_timer(daemon_.loop, PATIENCE_MS, on_patience, j);
}

/* Its thread has ended. */
static void
on_over(void *arg)
{
	struct job *j = arg;

	TAILQ_REMOVE(&jobs, j, link);
	job_count--;
	tell_done(j);
	stderr_of_unref(j->to);
	free(j->text);
	free(j);
}

bool
stderr_of_write(const struct stderr_line *line)
{
	struct sigaction sa = {.sa_handler = interrupted}; /* without SA_RESTART */
	struct job *j;

	if ((!line->to && !line->closer) || daemon_.ending || job_count == JOBS_MAX)
		return false;
	sigaction(SIGRTMIN, &sa, NULL);
	j = xcalloc(1, sizeof(*j));
	*j = (struct job){.to = line->to ? stderr_of_ref(line->to) : NULL,
	    .closer = line->closer,
	    .text = xstrdup(line->text),
	    .n = MIN(strlen(line->text), (size_t)PIPE_BUF),
	    .over = {.fn = on_over, .arg = j}};
	if (thread_start(&j->thread, run, j) != 0) {
		stderr_of_unref(j->to);
		free(j->text);
		free(j);
		return false;
	}
	pthread_detach(j->thread);
	j->done = line->done;
	j->arg = line->arg;
	j->patience = loop_timer(daemon_.loop, PATIENCE_MS, on_patience, j);
	TAILQ_INSERT_TAIL(&jobs, j, link);
	job_count++;
	return true;
}

void
stderr_of_stop(void)
{
	struct job *j;

	pthread_mutex_lock(&lock);
	stopped = true;
	pthread_mutex_unlock(&lock);
	loop_make_posted(daemon_.loop, on_over);
	TAILQ_FOREACH (j, &jobs, link)
		tell_done(j); /* its thread keeps it */
}
