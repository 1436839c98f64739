/* The process group made anew, namespaces kept. */
#ifndef RECOVERY_H
#define RECOVERY_H
#include "group/group.h"

/* Does some rank still meet the others? */
bool recovery_runs(const struct group *g);
/* Begins it, if it is wanted (g->recovery.needed) and no rank works. True: nothing is to be done
 * (any more). */
bool recovery_begin(struct group *g);
/* This rank has met the others, or will not: the last one ends the rebuild. */
void recovery_came_back(struct rank *k);
/* This rank has died: a rebuild is wanted, and who waits for the rank in one is freed. */
void recovery_lost(struct rank *k);
/* The store has died: the same for all ranks. */
void recovery_store_lost(struct group *g);
/* The engines end: no rebuild any more. */
void recovery_call_off(struct group *g);

#endif
