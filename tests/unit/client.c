/*
 * Tests of fs/session/client.c: /proc shows what a client's pending signals ask for. The client is
 * a child that is stopped, so that its signals stay pending.
 */
#include "session/client.h"
#include "check.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void
handler(int signo)
{
}

/* A child that handles SIGUSR1 and SIGTERM, ignores SIGHUP, blocks SIGALRM, and is stopped. */
static pid_t
client(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		sigset_t set;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* a parent that starts the test in the background may leave some signals ignored */
		for (int signo = 1; signo < SIGRTMIN; signo++)
			signal(signo, SIG_DFL);
		signal(SIGUSR1, handler);
		signal(SIGTERM, handler);
		signal(SIGHUP, SIG_IGN);
		sigemptyset(&set);
		sigaddset(&set, SIGALRM);
		sigprocmask(SIG_BLOCK, &set, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	return pid;
}

static void
test_wishes(void)
{
	static const struct {
		int signo;
		enum client_wish wish;
	} rows[] = {{0, CLIENT_NONE}, {SIGCHLD, CLIENT_NONE}, {SIGWINCH, CLIENT_NONE},
	    {SIGURG, CLIENT_NONE}, {SIGUSR1, CLIENT_NONE}, {SIGHUP, CLIENT_NONE},
	    {SIGALRM, CLIENT_NONE}, {SIGTSTP, CLIENT_PAUSE}, {SIGTTOU, CLIENT_PAUSE},
	    {SIGTERM, CLIENT_STOP}, {SIGINT, CLIENT_DYING}, {SIGPIPE, CLIENT_DYING},
	    {SIGQUIT, CLIENT_DYING}, {SIGUSR2, CLIENT_DYING}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		pid_t pid = client();
		enum client_wish wish;

		CHECK(kill(pid, rows[i].signo) == 0);
		wish = client_wish(pid);
		CHECK(wish == rows[i].wish);
		if (wish != rows[i].wish)
			fprintf(stderr, "signal %d: %d\n", rows[i].signo, wish);
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
		CHECK(client_wish(pid) == CLIENT_GONE);
	}
	CHECK(client_wish(0) == CLIENT_DYING);
}

/* Without a descriptor nothing is known of a client, which need not be gone. */
static void
test_no_descriptors(void)
{
	struct rlimit before, none;
	enum client_wish wish;
	pid_t pid = client();

	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	wish = client_wish(pid);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(wish == CLIENT_STOP);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* A process that lives, one that was killed but not yet reaped, one that exited by itself, and one
 * that no longer exists. */
static void
test_fates(void)
{
	siginfo_t info;
	pid_t pid = client();
	struct req_client now = client_now(pid);

	CHECK(now.process == pid && !now.exits && !now.killed);
	CHECK(kill(pid, SIGKILL) == 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	now = client_now(pid);
	CHECK(now.process == pid && now.exits && now.killed);
	CHECK(waitpid(pid, NULL, 0) == pid);
	now = client_now(pid);
	CHECK(now.process == pid && !now.exits && !now.killed);

	pid = client();
	CHECK(kill(pid, SIGCONT) == 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	now = client_now(pid);
	CHECK(now.process == pid && now.exits && !now.killed);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(client_now(0).process == 0 && client_process(0) == 0);
	CHECK(client_process(getpid()) == getpid());
}

static void
test_sftp(void)
{
	CHECK(!client_is_sftp(0) && !client_is_sftp(getpid()));
	prctl(PR_SET_NAME, "sftp-server");
	CHECK(client_is_sftp(getpid()));
	prctl(PR_SET_NAME, "sshd-session");
	CHECK(client_is_sftp(getpid()));
	prctl(PR_SET_NAME, "sshd-keygen");
	CHECK(!client_is_sftp(getpid()));
}

int
main(void)
{
	test_sftp();
	test_wishes();
	test_no_descriptors();
	test_fates();
	return CHECK_DONE();
}
