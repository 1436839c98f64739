/*
 * Rebuilds the process group after a failure while keeping the namespaces: all ranks join again
 * under a new generation, new ones by Tinit, the others by Trebuild. Only this module writes struct
 * group_recovery. Other modules request a rebuild and give a reason, which `events` shows.
 */
#ifndef RECOVERY_H
#define RECOVERY_H
#include "group/group.h"

/* Prints the table of its states, as lifecycle_print() does. */
void recovery_print(struct buf *out);
/* For a start: begins a new generation, with nothing to rebuild. */
void recovery_reset(struct group *g);
/* The ranks are ending: cancels the rebuild. */
void recovery_stop(struct group *g);
/* Requests a rebuild of the process group before the next cell. reason: one word for `events`. */
void recovery_request(struct group *g, const char *reason);
/* Is a rebuild requested or in progress? */
bool recovery_pending(const struct group *g);
/* Has a rebuild begun that some ranks have yet to rejoin? */
bool recovery_running(const struct group *g);
/* Is a rebuild waiting only for cells, which may run forever on ranks that have lost nothing? */
bool recovery_waits_for_cells(const struct group *g);
/* Begins a rebuild if one is requested and no rank is working. Returns true if none is needed. */
bool recovery_begin(struct group *g);
/* Counts one more failure in a row. Returns false if the group should give up. */
bool recovery_tolerates(struct group *g);

/* This rank has rejoined, or never will. The last one completes the rebuild. */
void recovery_rejoined(struct rank *k);
/* This rank has died: unblocks the ranks that wait for it. */
void recovery_rank_died(struct rank *k);
/* The store has died: unblocks all ranks that are rejoining. */
void recovery_store_died(struct group *g);
/* Sends SIGKILL to a rank's process. The others rejoin together with its replacement. */
void recovery_kill(struct rank *k, const char *reason);

#endif
