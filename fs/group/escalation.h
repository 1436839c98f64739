/*
 * Unblocks ranks when a cell does not end by itself: it was interrupted, its time is up, or one
 * rank has failed and others wait for it.
 *
 * - Step 1: one SIGINT. If a rank is known to be in a collective, that collective is ended, and
 *   again 100 ms later, because the rank may have been about to enter one.
 * - Step 2, one second later and every second from then on: a rank that has not taken the signal is
 *   unblocked wherever it waits. A rank that has taken it is unblocked if it has been in a
 *   collective that a peer has left for `grace` seconds.
 * - Step 3, `killafter` seconds after step 2: a rank that still has not taken the signal is killed.
 *   A new one takes its place, and `error` says that the namespace is lost.
 *
 * A rank takes the signal when Python raises KeyboardInterrupt, or runs the program's own handler.
 * From then on the handlers run to their end, however long that takes. A second request repeats the
 * KeyboardInterrupt, and unblocks a rank in whose handlers that is not raised, but never kills.
 * After a failure, step 1 is delayed by `grace` seconds, unless all others wait for ranks that have
 * ended (vain_wait.c).
 */
#ifndef ESCALATION_H
#define ESCALATION_H
#include "group/task.h"

/* A rank has ended while others are still working. If it failed, step 1 follows after `grace`. If
 * its program came to its end, its connections are closed then, as those of a process would be. */
void escalation_ended(struct subtask *j);
/* Takes step 1 now; a rank that was interrupted before gets another exception, which names why. */
void escalation_interrupt(struct task *w, enum interrupt_why why);
/* Sends only the signal, to this one rank, which must be working on the subtask. */
void escalation_signal(struct subtask *j, enum interrupt_why why);
/* The ranks that work on it are freed as if `grace` was over. No effect if it is, or if none has
 * failed. */
void escalation_end_grace(struct task *w);
/* Starts the `timeout` timer. */
void escalation_deadline(struct task *w);
/* The task has ended: requests a rebuild of the process group if its ranks may be out of step. */
void escalation_outcome(struct task *w);

#endif
