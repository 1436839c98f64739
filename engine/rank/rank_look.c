/*
 * Looks at the main thread a number of times, for whoever asks in which lines it mostly is. Each
 * look is taken by the first that has the GIL: the main thread itself, in Python's handler of a
 * signal, or a thread that waits for the GIL. The latter alone would not do: the main thread gives
 * it up at some lines sooner than at others, and would be seen at these. A thread that sleeps has
 * given it up, and gets no signal, which might end its system call. A stack within a wait for other
 * ranks is left out.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* LOOKS: of one request. SPREAD: times between them are up to this many eighths of a mean one, so
 * that no step of a program is in time with them. KEPT_S: so long what was found is the reply. */
enum { LOOKS = 20, SPREAD = 8, KEPT_S = 5, SPAN_MAX_MS = 2000 };

static struct {
	struct loop *loop;
	struct timer *timer; /* of the next look */
	uint64_t tags[64];
	size_t waiting;
	uint32_t span_ms;
	int left;	     /* looks that are still to be begun */
	int missed;	     /* whose times have passed before the next was taken */
	uint64_t ended;	     /* now_ns(); 0: nothing is kept */
	struct buf found;    /* the stacks */
	_Atomic bool wanted; /* a look has begun, and was not taken */
	_Atomic bool slept;  /* the main thread did, when it began */
	pthread_mutex_t lock;
	struct buf seen; /* the stack of the last look; guarded by lock */
} look = {.lock = PTHREAD_MUTEX_INITIALIZER};

int
rank_look_signal(void)
{
	return SIGRTMAX - 5;
}

void
rank_look_call(char state)
{
	if (state == 'R' && rank_handlers_has(rank_look_signal()))
		syscall(SYS_tgkill, getpid(), getpid(), rank_look_signal());
}

void
rank_look_init(struct loop *l)
{
	look.loop = l;
}

bool
rank_look_is_wanted(void)
{
	return look.wanted;
}

/* Keeps it, unless the thread waited for others: in a backward, it slept. */
void
rank_look_seen(struct slice stack)
{
	const char *in = rank_collective_aside ? NULL : rank_collective;
	bool waited = in && (strcmp(in, "backward") != 0 || look.slept);

	pthread_mutex_lock(&look.lock);
	buf_clear(&look.seen);
	if (!waited)
		buf_add(&look.seen, stack.p, stack.n);
	look.wanted = false;
	pthread_mutex_unlock(&look.lock);
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

/* Takes what the last look saw. Where the main thread was in one call all the time, it was for
 * those, too, that could not be taken meanwhile. */
static void
take(void)
{
	struct buf seen;

	if (look.wanted) {
		look.missed++;
		return;
	}
	pthread_mutex_lock(&look.lock);
	seen = look.seen;
	look.seen = (struct buf){0};
	pthread_mutex_unlock(&look.lock);
	for (int i = 0; seen.n && i <= look.missed; i++) {
		buf_add(&look.found, seen.p, seen.n);
		buf_addc(&look.found, '\n');
	}
	look.missed = 0;
	buf_free(&seen);
}

static void on_time(void *arg);

static void
next(void)
{
	uint64_t mean = look.span_ms / LOOKS, some = now_ns() / NS_PER_US % SPREAD;
	char state;

	look.left--;
	if (!look.wanted) {
		state = rank_flight_state();
		look.slept = state != 'R';
		look.wanted = true;
		rank_look_call(state);
		if (!rank_gil_want(GIL_LOOK))
			look.wanted = false;
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
	next();
}

void
rank_look_forget(void)
{
	bool looked = look.timer;

	loop_timer_del(look.timer);
	look.timer = NULL;
	look.ended = 0;
	look.missed = 0;
	look.wanted = false;
	buf_free(&look.found);
	pthread_mutex_lock(&look.lock);
	buf_free(&look.seen);
	pthread_mutex_unlock(&look.lock);
	if (looked)
		reply(); /* nothing, rather than what another cell does */
}
