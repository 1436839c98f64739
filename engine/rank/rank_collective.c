/*
 * Records which collective user code is in, since when, and how many have completed in this cell.
 * The I/O thread reads this without the GIL; the functions that write it are called with the GIL.
 */
#define _GNU_SOURCE
#include "rank/rank.h"

_Atomic(const char *) rank_collective;

static _Atomic uint64_t since; /* from now_ns(); 0: in none */
static _Atomic uint32_t count, steps;
static unsigned depth; /* one may call another, and threads may be in different ones */

void
rank_collective_enter(const char *name)
{
	if (depth++ > 0)
		return;
	since = now_ns();
	rank_collective = name;
}

void
rank_collective_leave(void)
{
	if (depth == 0 || --depth > 0)
		return;
	rank_collective = NULL;
	since = 0;
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
	steps = 0;
}

void
rank_collective_step(void)
{
	steps++;
}

uint32_t
rank_collective_steps(void)
{
	return steps;
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
