/*
 * How ranks are freed when a cell can't end by itself: one rank has failed and others wait for it,
 * somebody interrupts, or the time is up.
 *
 *   step 1  SIGINT; collectives ended where the rank is known to be in one
 *   step 2  1 s later, or at a second interrupt: SIGINT; collectives ended everywhere
 *   step 3  killafter seconds later: SIGKILL; a new rank takes the place
 *
 * A failure waits `grace` seconds before the first step, an interrupt does not.
 */
#ifndef ESCALATION_H
#define ESCALATION_H
#include "group/queue.h"

/* A rank has failed while others work on: the first step comes after `grace`. */
void escalation_failed(struct job *j);
/* The next step, now. */
void escalation_step(struct work *w);
/* The clock of `timeout` starts. */
void escalation_deadline(struct work *w);
/* The work is over: decides whether the process group must be made anew. */
void escalation_outcome(struct work *w);

#endif
