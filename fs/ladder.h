/*
 * How ranks are freed when a cell can't end by itself: one rank has failed and others wait for it,
 * somebody interrupts, or the time is up.
 *
 *   rung 1  SIGINT; collectives ended where the rank is known to be in one
 *   rung 2  1 s later, or at a second interrupt: SIGINT; collectives ended everywhere
 *   rung 3  killafter seconds later: SIGKILL; a new rank takes the place
 *
 * A failure waits `grace` seconds before the first rung, an interrupt does not.
 */
#ifndef LADDER_H
#define LADDER_H
#include "queue.h"

/* A rank has failed while others work on: the first rung comes after `grace`. */
void ladder_failed(struct job *j);
/* The next rung, now. */
void ladder_climb(struct work *w);
/* The clock of `timeout` starts. */
void ladder_deadline(struct work *w);
/* The work is over: decides whether the process group must be made anew. */
void ladder_outcome(struct work *w);

#endif
