/*
 * The far end of a line: starts the agent of this host and carries its lanes, for a daemon
 * elsewhere. It outlives its connections for a while.
 */
#define _GNU_SOURCE
#include "line/line.h"
#include "lineage.h"
#include "line/direct.h"
#include "line/far_log.h"
#include "line/lanes.h"
#include "line/stay.h"
#include "proc.h"
#include "signal_name.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	AGENT_END_MS = 4000, /* for the agent to kill what it runs, and exit */
	AGENT_LOOK_MS = 10,
	LAST_WORD_MS = 5000, /* for reporting the agent's exit to the other side */
	UNKNOWN_MS = 20000,  /* for the other side to reconnect, if it may not know of us */
	ABOVE = 10	     /* descriptors that are to be elsewhere in the agent */
};

static struct {
	struct loop *loop;
	struct line *line;
	struct stay stay;
	int waiter;		    /* closed when the streams end; -1: none */
	struct watch *waiter_watch; /* for signals */
	uint64_t linger_ms;	    /* how long to live without a connection */
	struct timer *linger;
	bool known;	     /* the line has been up */
	struct lanes *lanes; /* of the agent; NULL: it has exited */
	pid_t agent_pid;
	uint64_t lineage; /* of all that the agent has started */
} far;

/* Ends the agent, if it still runs, and all that it started. Returns its status, as of wait(2). */
static int
stop_agent(void)
{
	int status = 0;

	lanes_free(far.lanes);
	far.lanes = NULL;
	for (int ms = 0; far.agent_pid && waitpid(far.agent_pid, &status, WNOHANG) == 0;
	     ms += AGENT_LOOK_MS) {
		if (ms >= AGENT_END_MS)
			kill(far.agent_pid, SIGKILL);
		usleep(AGENT_LOOK_MS * 1000);
	}
	far.agent_pid = 0;
	lineage_end(far.lineage);
	return status;
}

/* Ends everything, and removes the stay's files. */
static _Noreturn void
end(int status)
{
	stop_agent();
	stay_remove(&far.stay);
	exit(status);
}

/* ---- the line ---- */

/* Reports that the agent has exited, with its status as of wait(2). */
static void
say_gone(int status)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", status);
	line_send(far.line, LINE_GONE, false, slice_text(text), (struct slice){0});
}

static void
on_packet(void *arg, int type, struct slice body)
{
	if (type == LINE_END) {
		say_gone(stop_agent());
		end(0);
	}
	if (type == LINE_OFFER)
		direct_reach(far.loop, far.line, body);
	else if (type < LINE_LANE + LINE_LANES && far.lanes)
		lanes_take(far.lanes, type - LINE_LANE, body);
}

static bool
on_more(void *arg)
{
	return far_log_more() || (far.lanes && lanes_more(far.lanes));
}

static void
on_up(void *arg)
{
	far.known = true;
}

static void
close_waiter(void)
{
	loop_fd_del(far.waiter_watch);
	far.waiter_watch = NULL;
	if (far.waiter >= 0)
		close(far.waiter);
	far.waiter = -1;
}

/* The process that the cluster started for this connection was signalled, or has exited. */
static void
on_waiter(void *arg, uint32_t events)
{
	int signo = stay_signal(far.waiter);

	if (signo == 0) {
		loop_fd_del(far.waiter_watch);
		far.waiter_watch = NULL;
		return;
	}
	if (far.agent_pid) /* which knows what that means */
		kill(far.agent_pid, signo);
}

static void
on_linger(void *arg)
{
	note("no connection for %g s: all ends here", (double)far.linger_ms / 1000);
	end(0);
}

static void
on_down(void *arg, const struct err *why)
{
	if (why->no)
		note("the connection: %s", why->text);
	close_waiter();
	if (!far.lanes)
		end(1); /* nobody can receive its last words */
	if (!far.linger)
		far.linger = loop_timer(far.loop,
		    far.known ? far.linger_ms : MIN(far.linger_ms, (uint64_t)UNKNOWN_MS), on_linger,
		    NULL);
}

static void
on_back(void *arg, const struct err *why)
{
	note("the direct connection has ended%s%s", why->no ? ": " : "", why->no ? why->text : "");
}

/* Uses these streams; the line reports when they come up, or end. */
static void
attach(int rfd, int wfd, int waiter)
{
	loop_timer_del(far.linger);
	far.linger = NULL;
	close_waiter();
	far.waiter = waiter;
	far.waiter_watch = loop_fd(far.loop, waiter, EPOLLIN, on_waiter, NULL);
	line_attach(far.line, rfd, wfd, (struct slice){0});
}

/* ---- the agent ---- */

static void
on_last_word(void *arg)
{
	end(1);
}

/* The agent has exited, and all that it ran with it: reports that, and exits. */
static void
on_agent_end(void)
{
	say_gone(stop_agent());
	loop_timer(far.loop, LAST_WORD_MS, on_last_word, NULL);
}

/* In the child. */
static _Noreturn void
become_agent(const int theirs[LINE_LANES])
{
	char self[] = "/proc/self/exe", program[] = "ddip-engine", option[] = "--away";
	char *argv[] = {program, option, far.stay.dir, NULL};
	sigset_t none;

	/* a launcher may have set some to be ignored */
	for (int signo = 1; signo < NSIG; signo++)
		signal(signo, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(theirs[0], 0);
	dup2(theirs[0], 1);
	for (int i = 1; i < LINE_LANES; i++)
		dup2(theirs[i], LINE_FD + i);
	execv(self, argv);
	die("%s: %s", self, strerror(errno));
}

static int
start_agent(struct err *e)
{
	int ours[LINE_LANES], theirs[LINE_LANES], pair[2];

	for (int i = 0; i < LINE_LANES; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return fail_errno(e, "socketpair");
		ours[i] = pair[0];
		theirs[i] = fcntl(pair[1], F_DUPFD_CLOEXEC, ABOVE);
		close(pair[1]);
	}
	far.agent_pid = fork();
	if (far.agent_pid < 0)
		return fail_errno(e, "fork of the agent");
	if (far.agent_pid == 0)
		become_agent(theirs);
	far.lineage = lineage_begin(far.agent_pid);
	for (int i = 0; i < LINE_LANES; i++)
		close(theirs[i]);
	far.lanes = lanes_new(far.loop, far.line, ours, on_agent_end);
	return 0;
}

/* ---- the beginning ---- */

static void
on_term(void *arg, int signo)
{
	if (far.agent_pid) /* which knows what that means */
		kill(far.agent_pid, signo);
}

static void
on_ignored(void *arg, int signo)
{
}

/* Serves until the end, starting with these streams. */
static _Noreturn void
serve(int rfd, int wfd, int waiter, int version)
{
	static const struct line_ops ops = {on_packet, on_more, on_up, on_down, on_back};
	struct err e = {0};

	note_as("ddip-relay");
	prctl(PR_SET_NAME, "ddip-relay");
	signal(SIGPIPE, SIG_IGN);
	far.loop = loop_new();
	for (const int *signo = signal_preempts; *signo; signo++)
		loop_signal(far.loop, *signo, on_ignored, NULL); /* the agent reports them */
	loop_signal(far.loop, SIGTERM, on_term, NULL);
	loop_signal(far.loop, SIGINT, on_ignored, NULL);
	loop_signal(far.loop, SIGHUP, on_ignored, NULL);
	far.line = line_new(far.loop, &ops, NULL);
	if (far_log_take(far.loop, far.line, &e) < 0 || start_agent(&e) < 0) {
		dprintf(wfd, "%s%s %s\n", BANNER, BANNER_ERROR, e.text);
		end(1);
	}
	stay_listen(&far.stay, far.loop, attach);
	dprintf(wfd, "%s%s %d %s %s\n", BANNER, BANNER_FAR, version, far.stay.dir, far.stay.secret);
	far.waiter = -1;
	attach(rfd, wfd, waiter);
	loop_run(far.loop);
	end(0);
}

/* The far end runs in its own process, which survives if those of a connection are killed. */
static int
begin(int version)
{
	struct err e = {0};
	int pair[2], in, out, null;
	pid_t pid;

	if (stay_check_streams(&e) < 0 || stay_open(&far.stay, &e) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		printf("%s%s %s\n", BANNER, BANNER_ERROR, e.no ? e.text : strerror(errno));
		return 1;
	}
	pid = fork();
	if (pid < 0) {
		printf("%s%s fork: %s\n", BANNER, BANNER_ERROR, strerror(errno));
		stay_remove(&far.stay);
		return 1;
	}
	if (pid > 0) {
		close(pair[1]);
		return stay_wait(pair[0]);
	}
	close(pair[0]);
	setsid();
	if (chdir("/") < 0)
		note("/: %s", strerror(errno));
	in = fcntl(0, F_DUPFD_CLOEXEC, 10);
	out = fcntl(1, F_DUPFD_CLOEXEC, 10);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 0);
	dup2(null, 1);
	close(null);
	serve(in, out, pair[1], version);
}

int
far_main(char **args, int version)
{
	proc_close_from(3);
	if (args[0] && args[1] && !args[2] && !strcmp(args[0], "--attach"))
		return stay_attach(args[1]);
	if (!args[0] || !args[1] || args[2] || strcmp(args[0], "--linger") != 0 ||
	    !stay_linger(args[1], &far.linger_ms)) {
		fputs("usage: ddip-engine far --linger SECONDS | far --attach DIR\n", stderr);
		return 2;
	}
	return begin(version);
}
