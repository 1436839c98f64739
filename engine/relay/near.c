/*
 * The near relay: the daemon's child, which talks to the daemon as an agent does, and to the far
 * relay over the command that leads to the host (dial.c).
 */
#define _GNU_SOURCE
#include "relay/relay.h"
#include "conn.h"
#include "proc.h"
#include "signal_name.h"
#include "relay/asked.h"
#include "relay/dial.h"
#include "relay/inbox.h"
#include "relay/bulk.h"
#include "relay/offer.h"
#include "relay/outbox.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	END_MS = 2500,	      /* for the other side to say that it has ended */
	QUEUED_MAX = 8 << 20, /* bytes for the daemon */
	LOOK_MS = 5
};

static struct {
	struct loop *loop;
	struct dial dial; /* how to reach the host */
	struct conn *daemon;
	struct link *link;
	struct outbox *out;
	struct inbox *in;
	struct buf bulks[PACKET_OUTPUT - PACKET_BULK + 1]; /* the beginning of a frame */
	struct asked *asked;
	uint64_t hello;	     /* tag of the first Thello, until it is answered */
	bool greeted;	     /* a Thello has arrived */
	bool outlives_term;  /* SIGTERM is some group's on_preempt */
	bool ending;	     /* the daemon is gone, and the other side is notified */
	struct timer *looks; /* much is queued for the daemon; NULL: not much */
} near;

static _Noreturn void
leave(int status)
{
	dial_end();
	exit(status);
}

/* Gives up: reports the reason to the daemon, and exits. */
__attribute__((noreturn)) static void
give_up(const struct err *e)
{
	struct err why;

	if (near.ending)
		leave(0);
	fail(&why, e->no, "host %s: %.900s", near.dial.host, e->text);
	note("%s", why.text);
	/* the reply to Thello, or the last words (tag 0) */
	conn_send(near.daemon, Rerror, 0, SLOT_AGENT, near.hello, -1, (uint32_t)why.no,
	    slice_text(why.text), slice_text(""));
	conn_flush(near.daemon);
	leave(1);
}

/* ---- the daemon ---- */

static void
answer_error(const struct msg *m, const struct err *e)
{
	if (m->tag)
		conn_send(near.daemon, Rerror, 0, m->slot, m->tag, -1, (uint32_t)e->no,
		    slice_text(e->text), slice_text(""));
}

/* Later ones measure the round trip. */
static void
hello(const struct msg *m)
{
	if (near.greeted || m->type != Thello)
		return;
	near.greeted = true;
	near.hello = m->tag;
	dial_start(&near.dial);
}

/* A reply is no longer wanted. Returns true if we have replied, and the rank need not know. */
static bool
cancelled(const struct msg *m)
{
	struct msg question = *m;
	struct err e;

	if (wire_unpack(m, Ncancel, NULL, &question.tag) < 0 ||
	    !asked_cancel(near.asked, m->slot, question.tag))
		return false;
	packet_cancelled(&e);
	answer_error(&question, &e);
	return true;
}

static void
on_daemon(void *arg, struct msg *m)
{
	struct err e = {0};
	uint32_t blob = 0;

	if (cancelled(m))
		return;
	near.outlives_term |= packet_spares_term(m);
	hello(m);
	if (m->fd >= 0 && !(blob = outbox_send(near.out, m, &e))) {
		answer_error(m, &e);
		return;
	}
	if (m->fd < 0)
		packet_send_frame(near.link, m);
	else
		asked_add(near.asked, m, blob);
}

static void
on_ended(void *arg)
{
	leave(0);
}

static void
end(void)
{
	if (near.ending)
		return;
	near.ending = true;
	if (!dial_has_session())
		leave(0);
	/* if there is no connection at the moment, one may come up in time; otherwise the far relay
	 * exits when its own linger time is over */
	link_send(near.link, PACKET_END, false, (struct slice){0}, (struct slice){0});
	loop_timer(near.loop, END_MS, on_ended, NULL);
}

static void
on_daemon_close(void *arg, const struct err *why)
{
	if (why->no)
		note("%s", why->text);
	end();
}

/* ---- the link ---- */

/* Adds the host's name to an error of the agent itself. */
static void
pass_error(const struct msg *m)
{
	struct slice trace;
	struct err why, e;

	wire_read_error(m, &why, &trace);
	fail(&e, why.no, "host %s: %.900s", near.dial.host, why.text);
	conn_send(
	    near.daemon, Rerror, 0, m->slot, m->tag, -1, (uint32_t)e.no, slice_text(e.text), trace);
}

/* The requests that m answers are over. */
static void
answered(const struct msg *m)
{
	struct wire_many it;
	struct msg each;
	struct err e = {0};

	if (m->type != Nmany) {
		asked_answered(near.asked, m);
		return;
	}
	if (wire_many_begin(&it, m, &e) < 0)
		give_up(&e);
	while (wire_many_next(&it, &each))
		asked_answered(near.asked, &each);
	wire_many_end(&it);
}

/* The far side sends no more bulk before the daemon has taken some of what is here. */
static void
hold_back(void *arg)
{
	bool much = conn_queued(near.daemon) > QUEUED_MAX;

	near.looks = much ? loop_timer(near.loop, LOOK_MS, hold_back, NULL) : NULL;
	link_hold(near.link, much);
}

static void
from_far(const struct msg *m)
{
	if (near.ending)
		return;
	if (m->tag && m->tag == near.hello && m->slot == SLOT_AGENT)
		near.hello = 0;
	answered(m);
	if (m->type == Rerror && m->slot == SLOT_AGENT)
		pass_error(m);
	else
		conn_forward(near.daemon, m);
	if (!near.looks)
		hold_back(NULL);
}

/* An object cannot be forwarded: its rank need not keep it. */
static void
unpin(const struct msg *m)
{
	struct buf b = {0};
	uint32_t handle;

	if (wire_unpack(m, Rget, NULL, NULL, &handle, NULL, NULL, NULL) < 0 || !handle)
		return;
	wire_pack(&b, Nfree, 0, m->slot, 0, handle);
	link_send(near.link, PACKET_FRAME, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
}

/* Delivers a frame whose descriptor's bytes have arrived, or never will. */
static void
deliver(void *arg, struct msg *m, const struct err *e)
{
	asked_answered(near.asked, m);
	if (near.ending)
		return;
	if (e->no) {
		unpin(m);
		answer_error(m, e);
	} else {
		conn_forward(near.daemon, m);
	}
}

static void
show_log(struct slice lines)
{
	while (lines.n) {
		const char *end = memchr(lines.p, '\n', lines.n);
		size_t n = end ? (size_t)(end - lines.p) : lines.n;

		fprintf(stderr, "%s: %.*s\n", near.dial.host, (int)n, lines.p);
		n = MIN(n + 1, lines.n);
		lines.p += n;
		lines.n -= n;
	}
}

/* The agent on the far side has exited by itself. */
static void
agent_gone(struct slice body)
{
	uint32_t status = 0;
	struct err e;

	packet_id(&body, &status);
	fail(&e, EHOSTDOWN, "its agent ended with %s %d: everything it ran is gone",
	    WIFSIGNALED((int)status) ? "signal" : "exit status",
	    WIFSIGNALED((int)status) ? WTERMSIG((int)status) : WEXITSTATUS((int)status));
	give_up(&e);
}

static void
on_packet(void *arg, int type, struct slice body)
{
	struct err e = {0};
	struct msg m;

	switch (type) {
	case PACKET_FRAME:
		if (packet_frame(body, &m, &e) == 0)
			from_far(&m);
		break;
	case PACKET_BULK:
	case PACKET_OUTPUT:
		bulk_take(&near.bulks[type - PACKET_BULK], body, from_far, &e);
		break;
	case PACKET_LOG:
		show_log(body);
		break;
	case PACKET_GONE:
		agent_gone(body);
		break;
	case PACKET_REFUSAL:
		offer_refused(body);
		break;
	default:
		inbox_take(near.in, type, body, &e);
	}
	if (e.no)
		give_up(&e);
}

static bool
on_more(void *arg)
{
	return outbox_more(near.out);
}

static void
on_up(void *arg)
{
	dial_up();
}

static void
on_down(void *arg, const struct err *why)
{
	dial_down(why);
}

/* Notifies the daemon which connection carries the packets. */
static void
on_moved(const struct err *why)
{
	conn_send(near.daemon, Ndirect, 0, SLOT_AGENT, 0, -1, (uint32_t)!why->no,
	    slice_text(why->no ? why->text : ""));
}

static void
on_back(void *arg, const struct err *why)
{
	struct err e;

	fail(&e, ECONNRESET, "it has ended%s%.900s", why->no ? ": " : "", why->no ? why->text : "");
	on_moved(&e);
}

/* ---- the beginning ---- */

static void
on_term(void *arg, int signo)
{
	if (!near.outlives_term)
		end();
}

static void
on_ignored(void *arg, int signo)
{
}

/* Moves the connection away from descriptors 0 and 1, which commands inherit. */
static int
take_daemon(void)
{
	int fd, null;

	proc_close_from(3);
	fd = fcntl(0, F_DUPFD_CLOEXEC, 10);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
		die("want the daemon on descriptors 0 and 1, and a log on 2: %s", strerror(errno));
	close(null);
	return fd;
}

/* Parses the arguments. Returns what is wrong with them; NULL: nothing. */
static const char *
parse(char **args)
{
	near.dial.engine = "auto";
	for (; args[0] && args[1] && strcmp(args[0], "--") != 0; args += 2) {
		if (!strcmp(args[0], "--host")) {
			near.dial.host = args[1];
		} else if (!strcmp(args[0], "--engine")) {
			near.dial.engine = args[1];
		} else if (!strcmp(args[0], "--linger")) {
			if (!packet_linger(args[1], &near.dial.linger_ms))
				return "--linger: want seconds";
		} else if (!strcmp(args[0], "--direct")) {
			near.dial.direct = args[1];
		} else {
			return "an option is not known";
		}
	}
	if (!args[0] || !args[1])
		return "want -- and a command";
	near.dial.command = args + 1;
	return near.dial.host ? NULL : "want --host NAME";
}

int
near_main(char **args)
{
	static const struct link_ops ops = {on_packet, on_more, on_up, on_down, on_back};
	const char *wrong = parse(args);
	int fd;

	if (wrong) {
		fprintf(stderr,
		    "ddip-engine relay: %s\nusage: ddip-engine relay --host NAME --linger SECONDS "
		    "--engine auto|PATH [--direct VARIABLE] -- COMMAND…\n",
		    wrong);
		return 2;
	}
	note_as("ddip-relay");
	prctl(PR_SET_NAME, "ddip-relay");
	fd = take_daemon();
	signal(SIGPIPE, SIG_IGN);
	near.loop = loop_new();
	for (const int *signo = signal_preempts; *signo; signo++)
		loop_signal(near.loop, *signo, on_ignored, NULL); /* the daemon handles them */
	loop_signal(near.loop, SIGTERM, on_term, NULL);
	/* Signals from a terminal are for the daemon; here they show as the end of its socket. */
	loop_signal(near.loop, SIGINT, on_ignored, NULL);
	loop_signal(near.loop, SIGHUP, on_ignored, NULL);
	loop_signal(near.loop, SIGQUIT, on_ignored, NULL);
	near.link = link_new(near.loop, &ops, NULL);
	near.dial.loop = near.loop;
	near.dial.link = near.link;
	near.dial.failed = give_up;
	near.dial.moved = on_moved;
	near.out = outbox_new(near.loop, near.link);
	near.in = inbox_new(deliver, NULL);
	near.daemon = conn_new(near.loop, fd, fd, on_daemon, on_daemon_close, NULL);
	conn_take_whole(near.daemon);
	near.asked = asked_new(near.out);
	loop_run(near.loop);
	return 0;
}
