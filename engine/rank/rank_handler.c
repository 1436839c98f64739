/* Whether the program takes SIGINT itself: then it ends in its own way, and the collectives that it
 * needs for that are left alone at first. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdatomic.h>

static atomic_bool own;

void
rank_handler_set(bool is_own)
{
	own = is_own;
}

bool
rank_handler_is_own(void)
{
	return own;
}
