/*
 * Steering: a cell that runs within the running one, in the main thread, between the same two steps
 * on all its ranks, or not at all.
 *
 * It is queued directly behind the cell that runs. Tsteer takes its source to the ranks, which say
 * how many steps they have done, and do not begin another one before an Nsteer has told them the
 * step at which it runs: the first that none has begun. A rank that comes there waits, which it
 * tells by Nsteered; once all do, queue.c sends each a Tsteerrun. If they do not come there in
 * time, or one of them wants to go on, an Nsteer of step 0 lets all go on. If the running cell ends
 * before, it begins as any cell does.
 *
 * This is a commit in two phases with the daemon as its coordinator: no rank goes on by itself, and
 * a rank does not outlive the daemon.
 */
#ifndef STEER_H
#define STEER_H
#include "group/steer_state.h"
#include "group/task.h"

/* Submits a source to run within the cell that runs now, on its ranks. If none does, it is a cell
 * of all ranks. NULL with *e set: EBUSY if more than one runs, EINVAL for a program, or as
 * cell_submit(). */
struct cell *steer_submit(struct group *g, struct slice source, struct err *e);
/* What steer_submit() and watch_submit() are made of: the running cell, NULL if none runs or *e is
 * set; a new cell on its ranks; submits that (watch NULL: a steer). */
struct cell *steer_around(struct group *g, const char *what, struct slice source, struct err *e);
struct cell *steer_new(struct cell *around, struct slice source);
void steer_begin(struct cell *c, struct cell *around, const struct steer_watch *watch);
/* One of a steer's parts has ended. */
void steer_part_over(struct subtask *j);

#endif
