/*
 * The far relay: starts the agent of this host and talks to it over a socket, on behalf of a daemon
 * elsewhere that it talks to over a link. It outlives its connections for a while.
 */
#define _GNU_SOURCE
#include "relay/relay.h"
#include "agent/agent.h"
#include "conn.h"
#include "lineage.h"
#include "proc.h"
#include "signal_name.h"
#include "relay/far_log.h"
#include "relay/inbox.h"
#include "relay/bulk.h"
#include "relay/outbox.h"
#include "relay/reach.h"
#include "relay/session.h"
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
	LAST_WORD_MS = 5000,   /* for reporting the agent's exit to the other side */
	UNKNOWN_MS = 20000,    /* for the other side to reconnect, if it may not know of us */
	BULK_KINDS = 1 + BULKS /* of bulk: more_of() */
};

static struct {
	struct loop *loop;
	struct link *link;
	struct session session;
	int waiter;		    /* closed when the streams end; -1: none */
	struct watch *waiter_watch; /* for signals */
	uint64_t linger_ms;	    /* how long to live without a connection */
	struct timer *linger;
	bool known;	    /* the link has been up */
	bool outlives_term; /* SIGTERM is some group's on_preempt */
	struct conn *agent;
	pid_t agent_pid;
	uint64_t lineage; /* of all that the agent has started */
	struct outbox *out;
	struct inbox *in;
	struct bulk *bulks[BULKS];
	unsigned turn;
} far;

/* Ends the agent, if it still runs, and all that it started. Returns its status, as of wait(2). */
static int
stop_agent(void)
{
	int status = 0;

	conn_free(far.agent);
	far.agent = NULL;
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

/* Ends everything, and removes the session's files. */
static _Noreturn void
end(int status)
{
	stop_agent();
	session_remove(&far.session);
	exit(status);
}

/* ---- the link ---- */

static void
refuse(const struct msg *m, const struct err *e)
{
	if (m->tag)
		packet_send_error(far.link, m->slot, m->tag, e);
}

/* Greets the agent, whose directories are in that of the session. */
static void
greet(const struct msg *m)
{
	uint32_t version;

	if (wire_unpack(m, Thello, NULL, &version, NULL) == 0)
		conn_send(far.agent, Thello, m->flags, m->slot, m->tag, -1, version,
		    slice_text(far.session.dir));
}

/* A reply is no longer wanted: the rest of it is not sent, nor is the rest of its request
 * awaited. */
static void
cancel(const struct msg *m)
{
	struct msg question = *m;
	struct err e;

	if (wire_unpack(m, Ncancel, NULL, &question.tag) < 0)
		return;
	if (!outbox_cancel(far.out, m->slot, question.tag) &&
	    !inbox_cancel(far.in, m->slot, question.tag))
		return;
	packet_cancelled(&e);
	refuse(&question, &e);
}

/* Handles a message from the daemon. */
static void
to_agent(void *arg, struct msg *m, const struct err *e)
{
	if (!far.agent)
		return;
	if (e->no) {
		refuse(m, e);
		return;
	}
	far.outlives_term |= packet_spares_term(m);
	if (m->type == Ncancel)
		cancel(m);
	if (m->type == Thello)
		greet(m);
	else
		conn_forward(far.agent, m);
}

/* Reports that the agent has exited, with its status as of wait(2). */
static void
say_gone(int status)
{
	packet_send(far.link, PACKET_GONE, false, (uint32_t)status, (struct slice){0});
}

static void
on_packet(void *arg, int type, struct slice body)
{
	struct err e = {0};
	struct msg m;

	if (type == PACKET_END) {
		say_gone(stop_agent());
		end(0);
	}
	if (type == PACKET_FRAME && packet_frame(body, &m, &e) == 0)
		to_agent(NULL, &m, &e);
	else if (type == PACKET_BLOB || type == PACKET_BYTES || type == PACKET_WITH ||
		 type == PACKET_FREE)
		inbox_take(far.in, type, body, &e);
	else if (type == PACKET_OFFER)
		reach_offered(far.loop, far.link, body);
	if (e.no) {
		note("%s", e.text);
		end(1);
	}
}

/* Sends a piece of one kind of bulk. */
static bool
more_of(unsigned kind)
{
	return kind < BULKS ? bulk_more(far.bulks[kind]) : outbox_more(far.out);
}

static bool
on_more(void *arg)
{
	if (far_log_more())
		return true;
	if (!far.agent)
		return false;
	for (unsigned i = 0; i < BULK_KINDS; i++)
		if (more_of(++far.turn % BULK_KINDS))
			return true;
	return false;
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
	int signo = session_signal(far.waiter);
	struct buf b = {0};

	if (signo == 0) {
		loop_fd_del(far.waiter_watch);
		far.waiter_watch = NULL;
		return;
	}
	if (signo == SIGTERM && !far.outlives_term)
		end(0);
	wire_pack(&b, Npreempted, 0, SLOT_AGENT, 0, (uint32_t)signo);
	link_send(far.link, PACKET_FRAME, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
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
	if (!far.agent)
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

/* Uses these streams; the link reports when they come up, or end. */
static void
attach(int rfd, int wfd, int waiter)
{
	loop_timer_del(far.linger);
	far.linger = NULL;
	close_waiter();
	far.waiter = waiter;
	far.waiter_watch = loop_fd(far.loop, waiter, EPOLLIN, on_waiter, NULL);
	link_attach(far.link, rfd, wfd, (struct slice){0});
}

/* ---- the agent ---- */

static void
on_agent(void *arg, struct msg *m)
{
	struct err e = {0};

	if (m->fd >= 0) {
		if (!outbox_answer(far.out, m, &e))
			refuse(m, &e);
		return;
	}
	packet_send_frame(far.link, m);
}

static void
on_last_word(void *arg)
{
	end(1);
}

/* The agent has exited, and all that it ran with it: reports that, and exits. */
static void
on_agent_close(void *arg, const struct err *why)
{
	say_gone(stop_agent());
	loop_timer(far.loop, LAST_WORD_MS, on_last_word, NULL);
}

static int
start_agent(struct err *e)
{
	char self[] = "/proc/self/exe", program[] = "ddip-engine", option[] = "--away";
	char *argv[] = {program, option, NULL};
	sigset_t none;
	int pair[2], bulk[BULKS][2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_errno(e, "socketpair");
	for (int i = 0; i < BULKS; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bulk[i]) < 0)
			return fail_errno(e, "socketpair");
	sigemptyset(&none);
	far.agent_pid = fork();
	if (far.agent_pid < 0)
		return fail_errno(e, "fork of the agent");
	if (far.agent_pid == 0) {
		/* a launcher may have set some to be ignored */
		for (int signo = 1; signo < NSIG; signo++)
			signal(signo, SIG_DFL);
		sigprocmask(SIG_SETMASK, &none, NULL);
		dup2(pair[1], 0);
		dup2(pair[1], 1);
		for (int i = 0; i < BULKS; i++) /* away from where they shall be */
			bulk[i][1] = fcntl(bulk[i][1], F_DUPFD_CLOEXEC, AWAY_BULK + BULKS);
		for (int i = 0; i < BULKS; i++)
			dup2(bulk[i][1], AWAY_BULK + i);
		execv(self, argv);
		die("%s: %s", self, strerror(errno));
	}
	far.lineage = lineage_begin(far.agent_pid);
	close(pair[1]);
	for (int i = 0; i < BULKS; i++) {
		close(bulk[i][1]);
		far.bulks[i] = bulk_new(far.loop, far.link, PACKET_BULK + i, bulk[i][0]);
	}
	far.agent = conn_new(far.loop, pair[0], pair[0], on_agent, on_agent_close, NULL);
	conn_take_whole(far.agent);
	return 0;
}

/* ---- the beginning ---- */

static void
on_term(void *arg, int signo)
{
	if (!far.outlives_term)
		end(0);
}

static void
on_ignored(void *arg, int signo)
{
}

/* Serves until the end, starting with these streams. */
static _Noreturn void
serve(int rfd, int wfd, int waiter)
{
	static const struct link_ops ops = {on_packet, on_more, on_up, on_down, on_back};
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
	far.link = link_new(far.loop, &ops, NULL);
	if (far_log_take(far.loop, far.link, &e) < 0 || start_agent(&e) < 0) {
		dprintf(wfd, "%s%s %s\n", BANNER, BANNER_ERROR, e.text);
		end(1);
	}
	far.out = outbox_new(far.loop, far.link);
	far.in = inbox_new(to_agent, NULL);
	session_listen(&far.session, far.loop, attach);
	dprintf(wfd, "%s%s %d %s %s\n", BANNER, BANNER_FAR, WIRE_VERSION, far.session.dir,
	    far.session.secret);
	far.waiter = -1;
	attach(rfd, wfd, waiter);
	loop_run(far.loop);
	end(0);
}

/* The session runs in its own process, which survives if those of a connection are killed. */
static int
begin(void)
{
	struct err e = {0};
	int pair[2], in, out, null;
	pid_t pid;

	if (session_check_streams(&e) < 0 || session_open(&far.session, &e) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		printf("%s%s %s\n", BANNER, BANNER_ERROR, e.no ? e.text : strerror(errno));
		return 1;
	}
	pid = fork();
	if (pid < 0) {
		printf("%s%s fork: %s\n", BANNER, BANNER_ERROR, strerror(errno));
		session_remove(&far.session);
		return 1;
	}
	if (pid > 0) {
		close(pair[1]);
		return session_wait(pair[0]);
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
	serve(in, out, pair[1]);
}

int
far_main(char **args)
{
	proc_close_from(3);
	if (args[0] && args[1] && !args[2] && !strcmp(args[0], "--attach"))
		return session_attach(args[1]);
	if (!args[0] || !args[1] || args[2] || strcmp(args[0], "--linger") != 0 ||
	    !packet_linger(args[1], &far.linger_ms)) {
		fputs("usage: ddip-engine far --linger SECONDS | far --attach DIR\n", stderr);
		return 2;
	}
	return begin();
}
