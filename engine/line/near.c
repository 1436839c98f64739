/*
 * The near end of a line: the daemon's child, with the daemon's lanes, and the command that leads
 * to the host (dial.c).
 */
#define _GNU_SOURCE
#include "line/line.h"
#include "line/dial.h"
#include "line/direct.h"
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	END_MS = 2500, /* for the other side to say that it has ended */
	ABOVE = 10     /* our descriptors, away from those that commands inherit */
};

static struct {
	struct loop *loop;
	struct dial dial; /* how to reach the host */
	struct lanes *lanes;
	struct line *line;
	int words;   /* for the daemon */
	bool ending; /* the daemon is gone, and the other side is notified */
} near;

static _Noreturn void
leave(int status)
{
	dial_end();
	exit(status);
}

/* Says a word to the daemon. */
__attribute__((format(printf, 1, 2))) static void
say(const char *fmt, ...)
{
	struct buf word = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&word, fmt, ap);
	va_end(ap);
	if (write(near.words, word.p, word.n) < 0)
		debug("agent", "a word for the daemon: %s", strerror(errno));
	buf_free(&word);
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
	say("error %d %s", why.no, why.text);
	lanes_flush(near.lanes);
	leave(1);
}

static void
on_ended(void *arg)
{
	leave(0);
}

/* The daemon is gone. */
static void
end(void)
{
	if (near.ending)
		return;
	near.ending = true;
	if (!dial_has_stay())
		leave(0);
	/* if there is no connection at the moment, one may come up in time; otherwise the far end
	 * exits when its own linger time is over */
	line_send(near.line, LINE_END, false, (struct slice){0}, (struct slice){0});
	loop_timer(near.loop, END_MS, on_ended, NULL);
}

/* ---- the line ---- */

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
	char *text = slice_dup(body);
	int status = atoi(text);
	struct err e;

	free(text);
	fail(&e, EHOSTDOWN, "its agent ended with %s %d: everything it ran is gone",
	    WIFSIGNALED(status) ? "signal" : "exit status",
	    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	give_up(&e);
}

static void
on_packet(void *arg, int type, struct slice body)
{
	struct err e;

	switch (type) {
	case LINE_LOG:
		show_log(body);
		break;
	case LINE_GONE:
		agent_gone(body);
		break;
	case LINE_REFUSAL:
		direct_refused(body);
		break;
	default:
		if (type >= LINE_LANE + LINE_LANES) {
			fail(&e, EBADMSG, "line: a packet of type %d is not known", type);
			give_up(&e);
		}
		if (!near.ending)
			lanes_take(near.lanes, type - LINE_LANE, body);
	}
}

static bool
on_more(void *arg)
{
	return lanes_more(near.lanes);
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
	if (why->no)
		say("indirect %s", why->text);
	else
		say("direct");
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
on_ignored(void *arg, int signo)
{
}

/* Moves the daemon's sockets away from where commands inherit them. */
static void
take_daemon(int lanes[LINE_LANES])
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	bool ok = true;

	for (int i = 0; i < LINE_LANES; i++) {
		lanes[i] = fcntl(i ? LINE_FD + i : 0, F_DUPFD_CLOEXEC, ABOVE);
		ok = ok && lanes[i] >= 0;
	}
	near.words = fcntl(1, F_DUPFD_CLOEXEC, ABOVE);
	if (!ok || near.words < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
		die("want the daemon on descriptors 0, 1, 3 and 4, and a log on 2: %s",
		    strerror(errno));
	close(null);
	for (int i = 1; i < LINE_LANES; i++)
		close(LINE_FD + i);
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
			if (!stay_linger(args[1], &near.dial.linger_ms))
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
near_main(char **args, int version)
{
	static const struct line_ops ops = {on_packet, on_more, on_up, on_down, on_back};
	const char *wrong = parse(args);
	int fds[LINE_LANES];

	if (wrong) {
		fprintf(stderr,
		    "ddip-engine relay: %s\nusage: ddip-engine relay --host NAME --linger SECONDS "
		    "--engine auto|PATH [--direct VARIABLE] -- COMMAND…\n",
		    wrong);
		return 2;
	}
	note_as("ddip-relay");
	prctl(PR_SET_NAME, "ddip-relay");
	proc_close_from(LINE_FD + LINE_LANES);
	take_daemon(fds);
	signal(SIGPIPE, SIG_IGN);
	near.loop = loop_new();
	/* It ends when the daemon's sockets do: signals are for the daemon. */
	for (const int *signo = signal_preempts; *signo; signo++)
		loop_signal(near.loop, *signo, on_ignored, NULL);
	loop_signal(near.loop, SIGTERM, on_ignored, NULL);
	loop_signal(near.loop, SIGINT, on_ignored, NULL);
	loop_signal(near.loop, SIGHUP, on_ignored, NULL);
	loop_signal(near.loop, SIGQUIT, on_ignored, NULL);
	near.line = line_new(near.loop, &ops, NULL);
	near.lanes = lanes_new(near.loop, near.line, fds, end);
	near.dial.loop = near.loop;
	near.dial.line = near.line;
	near.dial.version = version;
	near.dial.failed = give_up;
	near.dial.moved = on_moved;
	dial_start(&near.dial);
	loop_run(near.loop);
	return 0;
}
