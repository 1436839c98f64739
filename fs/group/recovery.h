/*
 * Rebuilds the process group after a failure and keeps the namespaces: under a new generation all
 * ranks join again, new ones by Tinit, the others by Trebuild. Only this module writes struct
 * group_recovery. Other modules ask for a rebuild and give a reason, which `events` shows.
 */
#ifndef RECOVERY_H
#define RECOVERY_H
#include "group/group.h"

/* A start: a new generation, nothing to rebuild. */
void recovery_reset(struct group *g);
/* The ranks end: no rebuild any more. */
void recovery_stop(struct group *g);
/* Before the next cell the process group must be rebuilt. reason: one word for `events`. */
void recovery_request(struct group *g, const char *reason);
/* Is a rebuild asked for, or under way? */
bool recovery_pending(const struct group *g);
/* Has it begun, and are ranks still to rejoin? */
bool recovery_running(const struct group *g);
/* Does it wait for nothing but cells, which may run for ever on ranks that have lost nothing? */
bool recovery_waits_for_cells(const struct group *g);
/* Begins it, if it is asked for and no rank works. True: there is nothing to be done (any more). */
bool recovery_begin(struct group *g);
/* One more failure in a row. False: there have been too many, and the group should stop. */
bool recovery_tolerates(struct group *g);

/* This rank has rejoined, or will not: the last one ends the rebuild. */
void recovery_rejoined(struct rank *k);
/* This rank has died: those that wait for it are unblocked. */
void recovery_rank_died(struct rank *k);
/* The store has died: the same for all ranks. */
void recovery_store_died(struct group *g);
/* SIGKILL to a rank's process; the others rejoin with the one that takes its place. */
void recovery_kill(struct rank *k, const char *reason);

#endif
