/*
 * Watching: an expression that each rank of the running cell evaluates at each of its steps. At the
 * first step at which it is true on any rank, all of them stop.
 *
 * It is a steer that is never sent to run: see steer.h for how it is queued, and how the ranks
 * agree on the step at which they begin. From there on a rank tells by Nwatched at each step what
 * the expression is, and waits. It goes on when all ranks have come to that step and it is true on
 * none (Nwatch), so that none has gone past the step at which they are to stop. That costs each
 * step a round trip to the daemon, and the ranks the time of the slowest. One that does not come
 * within `grace` is not waited for until it comes to a step again.
 *
 * The ranks that have stopped wait until the watch ends: its writer has gone, it was cancelled, or
 * the cell is interrupted. A steer runs at the step at which they stand.
 */
#ifndef WATCH_H
#define WATCH_H
#include "group/steer_state.h"

/* Submits a watch of the running cell. NULL with *e set: ESRCH if none runs, EBUSY if more than one
 * runs, or the cell is watched, EINVAL for a program. */
struct cell *watch_submit(struct group *g, struct slice source, struct err *e);
/* The watch of the running cell, NULL if there is none. */
struct cell *watch_of(const struct group *g);
/* "stopped" or "armed" of one that has not ended, else how it ended. */
const char *watch_state(const struct cell *c);

#endif
