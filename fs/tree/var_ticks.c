/* The differences of two tables as ticks. Each costs the daemon two requests, so they are bounded.
 */
#include "tree/var_ticks.h"
#include "group/external.h"
#include "host/ticks.h"
#include <stdio.h>

enum {
	NAMES_MAX = 1000,   /* of one report in a directory */
	PENDING_MAX = 4000, /* of all directories together */
	DIR_SIZE = 128	    /* a group's name has at most 64 letters */
};

static void
tick_name(void *dir, bool made, struct slice name)
{
	ticks_path(
	    made ? TICK_CREATE : TICK_DELETE, "%s/%.*s", (const char *)dir, (int)name.n, name.p);
}

static void
tick_directory(char *dir, const struct var_table *old, const struct var_table *new, size_t n)
{
	if (n > NAMES_MAX || ticks_pending() + n > PENDING_MAX)
		ticks_path(TICK_MODIFY, "%s", dir);
	else
		var_table_diff(old, new, tick_name, dir);
}

void
var_ticks_table(struct group *g, int rank, const struct var_table *old, const struct var_table *new)
{
	size_t n = var_table_diff(old, new, NULL, NULL);
	char dir[DIR_SIZE];

	if (n == 0)
		return;
	snprintf(dir, sizeof(dir), "%s/rank%d/vars", g->name, rank);
	tick_directory(dir, old, new, n);
	if (rank != external_first(g))
		return;
	snprintf(dir, sizeof(dir), "%s/vars", g->name);
	tick_directory(dir, old, new, n);
}
