/*
 * Looks at the main thread a number of times, for whoever asks in which lines it mostly is. On a
 * signal faulthandler writes the stack of the thread that takes it, wherever that is. The GIL is
 * not waited for, as a dump of all threads does: the thread gives it up at some lines sooner than
 * at others, and would be seen at these. A stack within a wait for other ranks is left out.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* LOOKS: of one request. SPREAD: times between them are up to this many eighths of a mean one, so
 * that no step of a program is in time with them. KEPT_S: so long what was found is the reply. */
enum { LOOKS = 20, SPREAD = 8, KEPT_S = 5, SPAN_MAX_MS = 2000, DUMP_SIZE = 8 << 10 };

static struct {
	int fd;
	void (*python)(int); /* faulthandler's handler; NULL: Python is not running yet */
	struct loop *loop;
	struct timer *timer; /* of the next look */
	uint64_t tags[64];
	size_t waiting;
	uint32_t span_ms;
	int left;	  /* looks that are still to be begun */
	bool sleeps;	  /* the main thread did, before the last look */
	uint64_t ended;	  /* now_ns(); 0: nothing is kept */
	struct buf found; /* the stacks */
	unsigned sent;	  /* signals */
	_Atomic unsigned taken;
	_Atomic(const char *) in; /* where the main thread was, as rank_collective */
} look = {.fd = -1};

int
rank_look_signal(void)
{
	return SIGRTMAX - 5;
}

int
rank_look_fd(void)
{
	return look.fd;
}

static void
on_signal(int signo)
{
	int saved = errno;

	look.in = rank_collective_aside ? NULL : rank_collective;
	if (look.python)
		look.python(signo);
	look.taken++;
	errno = saved;
}

/* A program may have set the signal's handler anew: by default it would end the process. */
static bool
is_handled(void)
{
	struct sigaction now;

	return sigaction(rank_look_signal(), NULL, &now) == 0 && now.sa_handler == on_signal;
}

static void
handle(void)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};

	/* faulthandler writes one dump at a time, and skips another */
	sigaddset(&act.sa_mask, rank_stack_signal());
	if (sigaction(rank_look_signal(), &act, NULL) < 0)
		die("look signal: %s", strerror(errno));
}

void
rank_look_open(void)
{
	look.fd = memfd_create("ddip-look", MFD_CLOEXEC);
	if (look.fd < 0 || fcntl(look.fd, F_SETFL, O_APPEND) < 0)
		die("looks: %s", strerror(errno));
	handle();
}

void
rank_look_begin(void)
{
	struct sigaction theirs;

	if (sigaction(rank_look_signal(), NULL, &theirs) < 0)
		die("look signal: %s", strerror(errno));
	look.python = theirs.sa_handler;
	handle();
}

void
rank_look_init(struct loop *l)
{
	look.loop = l;
}

static void
reply(void)
{
	for (size_t i = 0; i < look.waiting; i++) {
		struct buf body = {0};
		struct msg m;

		wire_pack(&body, Rlook, 0, 0, look.tags[i], look.span_ms,
		    ((struct slice){look.found.p, look.found.n}));
		if (wire_frame(body.p, body.n, &m, NULL) > 0)
			rank_link_send(&m);
		buf_free(&body);
	}
	look.waiting = 0;
}

static void
clear(void)
{
	if (ftruncate(look.fd, 0) < 0)
		note("look: %s", strerror(errno));
}

/* Keeps the stack of the last look, unless the thread waited for others: in a backward, it slept.
 */
static void
take(void)
{
	const char *in = look.in;
	bool waited = in && (strcmp(in, "backward") != 0 || look.sleeps);
	ssize_t n = 0;

	if (look.taken != look.sent)
		return; /* it is in an uninterruptible call */
	if (!waited)
		n = pread(look.fd, buf_reserve(&look.found, DUMP_SIZE), DUMP_SIZE, 0);
	if (n > 0) {
		look.found.n += (size_t)n;
		buf_addc(&look.found, '\n');
	}
	clear();
}

static void on_time(void *arg);

static void
next(void)
{
	uint64_t mean = look.span_ms / LOOKS, some = now_ns() / NS_PER_US % SPREAD;

	look.left--;
	if (look.taken == look.sent && look.python && is_handled()) {
		look.sleeps = rank_flight_state() != 'R';
		look.sent++;
		syscall(SYS_tgkill, getpid(), getpid(), rank_look_signal());
	}
	look.timer = loop_timer(look.loop, mean / 2 + mean * some / (SPREAD - 1), on_time, NULL);
}

static void
on_time(void *arg)
{
	look.timer = NULL;
	take();
	if (look.left > 0) {
		next();
		return;
	}
	look.ended = now_ns();
	reply();
}

void
rank_look_ask(uint64_t tag, uint32_t span_ms)
{
	if (look.waiting == ARRAY_LEN(look.tags))
		reply();
	look.tags[look.waiting++] = tag;
	if (look.timer)
		return; /* those in progress are for this request, too */
	if (look.ended && now_ns() - look.ended < KEPT_S * NS_PER_S) {
		reply();
		return;
	}
	rank_look_forget();
	look.span_ms = MIN(span_ms, (uint32_t)SPAN_MAX_MS);
	look.left = LOOKS;
	clear(); /* an earlier signal may have been taken since */
	next();
}

void
rank_look_forget(void)
{
	bool looked = look.timer;

	loop_timer_del(look.timer);
	look.timer = NULL;
	look.ended = 0;
	buf_free(&look.found);
	if (looked)
		reply(); /* nothing, rather than what another cell does */
}
