/* The process group made anew, namespaces kept. */
#ifndef REBUILD_H
#define REBUILD_H
#include "group.h"

/* Does some rank still meet the others? */
bool rebuild_runs(const struct group *g);
/* Begins it, if it is wanted (g->rebuild) and no rank works. True: nothing is to be done (any
 * more). */
bool rebuild_begin(struct group *g);
/* This rank has met the others, or will not: the last one ends the rebuild. */
void rebuild_came_back(struct rank *k);
/* This rank has died: a rebuild is wanted, and who waits for the rank in one is freed. */
void rebuild_lost(struct rank *k);
/* The store has died: the same for all ranks. */
void rebuild_store_lost(struct group *g);
/* The engines end: no rebuild any more. */
void rebuild_call_off(struct group *g);

#endif
