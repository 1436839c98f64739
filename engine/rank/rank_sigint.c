/*
 * Whether the program handles SIGINT itself. If it does, it ends in its own way, and the
 * collectives that it needs for that are left alone until it is interrupted again.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdatomic.h>

static atomic_bool own;
static atomic_bool ours = true;
static atomic_uint interrupts; /* of the cell that runs */

void
rank_sigint_set(bool is_own, bool is_ours)
{
	own = is_own;
	ours = is_ours;
}

bool
rank_sigint_is_ours(void)
{
	return ours;
}

void
rank_sigint_begin(void)
{
	interrupts = 0;
}

void
rank_sigint_interrupted(void)
{
	interrupts++;
}

bool
rank_sigint_ends_itself(void)
{
	return own && interrupts <= 1;
}
