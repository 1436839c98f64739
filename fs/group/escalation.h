/*
 * Unblocks ranks when a cell cannot end by itself: somebody interrupts it, its time is up, or one
 * rank has failed and others wait for it.
 *
 * - Step 1: one SIGINT. The collective that a rank is known to be in is ended, and again 100 ms
 *   later, because the rank may have been about to enter one.
 * - Step 2, one second later and each second from then on: a rank that has not taken the signal is
 *   unblocked wherever it waits. One that has taken it is unblocked if it has been for `grace`
 *   seconds in a collective that a peer has left.
 * - Step 3, `killafter` seconds after step 2: a rank that still has not taken the signal is killed.
 *   A new one takes its place, and `error` says that the namespace is lost.
 *
 * A rank takes the signal when Python raises its KeyboardInterrupt. From then on its handlers run
 * to their end, however long that takes. A second request repeats the KeyboardInterrupt, and never
 * kills. A failure waits `grace` seconds before step 1.
 */
#ifndef ESCALATION_H
#define ESCALATION_H
#include "group/task.h"

/* A rank has failed while others work on: step 1 comes after `grace`. */
void escalation_failed(struct subtask *j);
/* Step 1, now; for a rank that was interrupted before, another KeyboardInterrupt. */
void escalation_interrupt(struct task *w);
/* No more than the signal, to this rank, which works on it. */
void escalation_signal(struct subtask *j);
/* The same for the end of the hosts: what is raised is ddip.Preempted. */
void escalation_preempt(struct task *w);
/* The engine says that the KeyboardInterrupt of this cell, or self-test, was raised. */
void escalation_taken(struct rank *k, uint32_t number);
/* The clock of `timeout` starts. */
void escalation_deadline(struct task *w);
/* The task is over: asks for a rebuild of the process group if its ranks may be out of step. */
void escalation_outcome(struct task *w);

#endif
