/*
 * Tests of fs/base/stderr_of.c: no thread stays in a write to a full pipe, whosever that is,
 * although poll(2) has just seen room in it. Another user's pipe cannot be opened anew, and its
 * duplicate blocks. A line goes to what a process has as its standard error now, also if that was
 * another file before.
 */
#include "fake_agent.h"
#include "base/daemon.h"
#include "base/stderr_of.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, LINES = 40 /* more than are written at once */, LIMIT_S = 30 };

static int own_threads; /* that the process has while it writes no line */
static bool lies;	/* poll(2) sees room where none is */

int
poll(struct pollfd *p, nfds_t n, int ms) /* instead of libc's */
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	int r = ppoll(p, n, ms < 0 ? NULL : &t, NULL);

	if (lies && r == 0 && n == 1) {
		p->revents = POLLOUT;
		r = 1;
	}
	return r;
}

/* A process of this user with this standard error, which does nothing. */
static pid_t
writer(int err, uid_t uid)
{
	int ready[2];
	char c;
	pid_t pid;

	CHECK(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		if (dup2(err, STDERR_FILENO) < 0 || (uid && setuid(uid) < 0) ||
		    prctl(PR_SET_DUMPABLE, 1) < 0 || /* else its files in /proc are root's */
		    write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* How many threads this process has. */
static int
threads(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	CHECK(d != NULL);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Lets time pass until so many have been told that they need not wait, and nobody writes any more.
 * Returns false if that does not happen. */
static bool
at_rest(const int *done, int wanted)
{
	for (int i = 0; i < LIMIT_S * 100; i++) {
		fake_pass(0.1);
		if (*done == wanted && threads() == own_threads)
			return true;
		usleep(10000);
	}
	return false;
}

static void
count(void *arg)
{
	++*(int *)arg;
}

static void
fill(int fd)
{
	static const char bytes[1 << 12];

	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	while (write(fd, bytes, sizeof(bytes)) > 0)
		continue;
	CHECK(fcntl(fd, F_SETFL, 0) == 0);
}

/* Lines for a process of this user with a full pipe are lost, and one is written when there is
 * room. */
static void
test_full(uid_t uid, bool race)
{
	int ends[2], done = 0, asked = 0;
	static char text[1 << 20];
	struct stderr_line line = {.text = "ddipfs: text\n", .done = count, .arg = &done};
	pid_t pid;
	ssize_t n;

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	fill(ends[1]);
	pid = writer(ends[1], uid);
	line.to = stderr_of_thread(pid);
	CHECK(line.to != NULL);
	lies = race;
	for (int i = 0; i < LINES; i++)
		asked += stderr_of_write(&line);
	CHECK(asked > 0 && at_rest(&done, asked));
	lies = false;
	CHECK(!(fcntl(ends[1], F_GETFL) & O_NONBLOCK));
	n = read(ends[0], text, sizeof(text));
	CHECK(n > 0 && !memchr(text, 'd', (size_t)n));
	CHECK(stderr_of_write(&line));
	CHECK(at_rest(&done, asked + 1));
	n = read(ends[0], text, sizeof(text));
	CHECK(n == (ssize_t)strlen(line.text) && memcmp(text, line.text, (size_t)n) == 0);
	stderr_of_unref(line.to);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ends[0]);
	close(ends[1]);
}

static int other, ready; /* descriptors of the process that moves */

/* Its standard error is the other file, then closed. */
static void
move(int sig)
{
	if (sig == SIGUSR1 ? dup2(other, STDERR_FILENO) < 0 : close(STDERR_FILENO) < 0)
		_exit(1);
	if (write(ready, "", 1) != 1)
		_exit(1);
}

static void
say(pid_t pid)
{
	struct stderr_line line = {.text = "line\n"};
	int done = 0;

	line.to = stderr_of_thread(pid);
	line.done = count;
	line.arg = &done;
	CHECK(line.to && stderr_of_write(&line));
	CHECK(at_rest(&done, 1));
	stderr_of_unref(line.to);
}

static void
signalled(pid_t pid, int sig, int fd)
{
	char c;

	CHECK(kill(pid, sig) == 0 && read(fd, &c, 1) == 1);
}

static off_t
size_of(int file)
{
	struct stat st;

	CHECK(fstat(file, &st) == 0);
	return st.st_size;
}

static void
test_moves(void)
{
	char paths[2][32];
	int files[2], ends[2];
	pid_t pid;

	for (int i = 0; i < 2; i++) {
		snprintf(paths[i], sizeof(paths[i]), "/tmp/ddip-err%d.XXXXXX", i);
		files[i] = mkstemp(paths[i]);
		CHECK(files[i] >= 0 && unlink(paths[i]) == 0);
	}
	CHECK(pipe(ends) == 0);
	other = files[1];
	ready = ends[1];
	signal(SIGUSR1, move);
	signal(SIGUSR2, move);
	pid = writer(files[0], 0);
	for (int i = 0; i < 3; i++)
		say(pid);
	CHECK(size_of(files[0]) == 15 && size_of(files[1]) == 0);
	signalled(pid, SIGUSR1, ends[0]);
	for (int i = 0; i < 2; i++)
		say(pid);
	CHECK(size_of(files[0]) == 15 && size_of(files[1]) == 10);
	signalled(pid, SIGUSR2, ends[0]);
	CHECK(stderr_of_thread(pid) == NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK(stderr_of_thread(pid) == NULL);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
	for (int i = 0; i < 2; i++) {
		close(files[i]);
		close(ends[i]);
	}
}

int
main(void)
{
	fake_begin(1);
	own_threads = threads();
	test_moves();
	test_full(0, false);
	test_full(0, true);
	if (geteuid() == 0) { /* who may be another user */
		test_full(NOBODY, false);
		test_full(NOBODY, true);
	}
	stderr_of_stop();
	fake_end();
	return CHECK_DONE();
}
