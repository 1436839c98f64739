/*
 * Records which collective user code is in, since when, and how many have completed in this cell;
 * and the ticks of its clocks.
 * The I/O thread reads this without the GIL, and resets it while the main thread is idle; all else
 * is written with the GIL.
 */
#define _GNU_SOURCE
#include "rank/profile.h"
#include "rank/rank.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A loop of several collectives is to have one in each of these. */
enum { TOGETHER = 8 };

_Atomic(const char *) rank_collective;
atomic_bool rank_collective_aside;

static _Atomic uint64_t since; /* from now_ns(); 0: in none */
static _Atomic uint32_t count;
static struct profile profiles[CLOCKS];
static _Atomic uint64_t ticked; /* now_ns() at the last tick */
static _Atomic uint64_t period; /* between the last two, in ns */
static bool armed;
static struct collective *outermost; /* of each thread that is in one, the last first */
static _Thread_local struct collective *innermost; /* of this thread; NULL: in none */

static bool
is_main(void)
{
	static _Thread_local int known; /* 1: it is, -1: it is not */

	if (!known)
		known = gettid() == getpid() ? 1 : -1;
	return known > 0;
}

/* The time in ns for which this thread has been on a CPU. Costs some 0.5 us. */
static uint64_t
cpu_ns(void)
{
	struct timespec t;

	return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) < 0
		   ? 0
		   : (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The main thread has left it. What it computed meanwhile, as it does in a backward, is no wait. */
static void
note_wait(const struct collective *c)
{
	uint64_t took = now_ns() - c->since, computed = c->computes ? cpu_ns() - c->cpu : 0;

	for (int i = 0; took > computed && i < CLOCKS; i++)
		profile_wait(&profiles[i], c->name, took - computed);
}

/* The main thread is what people see; of other threads the first to be in one stands for them. */
static void
publish(void)
{
	const struct collective *shown = NULL;

	for (struct collective *c = outermost; c && !(shown && shown->is_main); c = c->next)
		shown = c;
	rank_collective = shown ? shown->name : NULL;
	rank_collective_aside = shown && !shown->is_main;
	since = shown ? shown->since : 0;
}

void
rank_collective_enter(struct collective *c, const char *name)
{
	*c = (struct collective){.name = name, .around = innermost};
	innermost = c;
	if (c->around)
		return;
	c->since = now_ns();
	c->is_main = is_main();
	c->computes = c->is_main && strcmp(name, "backward") == 0;
	if (c->computes)
		c->cpu = cpu_ns();
	c->next = outermost;
	outermost = c;
	publish();
}

void
rank_collective_leave(struct collective *c)
{
	struct collective **at = &outermost;

	innermost = c->around;
	if (c->around)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	publish();
	if (c->is_main)
		note_wait(c);
}

void
rank_collective_done(void)
{
	count++;
}

void
rank_collective_reset(void)
{
	count = 0;
	ticked = period = 0;
	for (int i = 0; i < CLOCKS; i++)
		profile_reset(&profiles[i]);
}

bool
rank_collective_tick(enum clock clock)
{
	uint64_t now;

	if (!is_main() || (clock != CLOCK_OPTIMIZER && innermost))
		return false;
	now = now_ns();
	period = ticked ? now - ticked : 0;
	ticked = now;
	profile_step(&profiles[clock], now, cpu_ns());
	return armed;
}

uint64_t
rank_collective_arm(bool on)
{
	armed = on;
	return period;
}

bool
rank_collective_armed(void)
{
	return armed;
}

uint32_t
rank_collective_ticks(enum clock clock)
{
	return profiles[clock].count;
}

void
rank_collective_profile(struct buf *out)
{
	for (int i = 0; i < CLOCKS; i++) {
		struct profile_found found =
		    profile_read(&profiles[i], i == CLOCK_COLLECTIVE ? TOGETHER : 1);

		if (found.steps)
			buf_addf(out, "profile %d %u %.0f %.0f %.0f %s\n", i, found.steps,
			    found.step, found.waited, found.cpu, found.in ? found.in : "-");
	}
}

uint32_t
rank_collective_count(void)
{
	return count;
}

uint64_t
rank_collective_us(void)
{
	uint64_t begin = since;

	return begin ? (now_ns() - begin) / 1000 : 0;
}
