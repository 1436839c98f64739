/*
 * Records which collective user code is in, since when, and how many have completed in this cell;
 * and the ticks of its clocks.
 * The I/O thread reads this without the GIL; the functions that write it are called with the GIL.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdatomic.h>
#include <unistd.h>

_Atomic(const char *) rank_collective;
atomic_bool rank_collective_aside;

static _Atomic uint64_t since; /* from now_ns(); 0: in none */
static _Atomic uint32_t count, ticks[CLOCKS];
static uint64_t ticked, period; /* now_ns() at the last tick; the time between the last two */
static bool armed;
static struct collective *outermost; /* of each thread that is in one, the last first */
static _Thread_local struct collective *innermost; /* of this thread; NULL: in none */

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
	c->is_main = gettid() == getpid();
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
		ticks[i] = 0;
}

static bool
is_main(void)
{
	static _Thread_local int known; /* 1: it is, -1: it is not */

	if (!known)
		known = gettid() == getpid() ? 1 : -1;
	return known > 0;
}

bool
rank_collective_tick(enum clock clock)
{
	uint64_t now;

	if (!is_main() || (clock == CLOCK_COLLECTIVE && innermost))
		return false;
	now = now_ns();
	period = ticked ? now - ticked : 0;
	ticked = now;
	ticks[clock]++;
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
	return ticks[clock];
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
