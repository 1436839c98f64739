/*
 * The task queues of the ranks, in order of submission. A task is in the queues of all its ranks at
 * the same time. Cells, pushes, removals and resets are tasks.
 */
#ifndef QUEUE_H
#define QUEUE_H
#include "group/task.h"
#include "wire.h"

void task_submit(struct task *w);
/* Parks r until the task has ended, and replies with its errno. A signal interrupts the task. */
int task_wait(struct task *w, struct req *r);
/* Begins a queued cell on all its ranks, which wait for it in the cell that they run. */
void queue_begin_within(struct task *w);
/* Interrupts a task: drops it where it is queued, starts the escalation where it runs. */
void task_interrupt(struct task *w);
/* Drops the task if none of its subtasks has been sent. Returns false if one has. */
bool task_cancel(struct task *w, int error, const char *why);
/* The same because its writer has ended. */
bool task_withdraw(struct task *w);
/* Can the first subtask in the queue be sent now? Not while the rank or its group is starting,
 * ending or recovering. */
bool queue_goes_on(const struct rank *k);
/* Sends whatever can be sent to the ranks of the group. */
void queue_pump_all(struct group *g);
/* The ranks will not come back: fails everything in their queues with e. */
void queue_drop_all(struct group *g, const struct err *e);
/* The rank's process has ended: fails a subtask that is prepared but not committed there. */
void queue_lost(struct rank *k, const struct err *e);
/* Fail everything that has not begun, except what task_must_end(). */
void queue_drop_queued(struct rank *k, const struct err *e);
void queue_drop_all_queued(struct group *g, const struct err *e);

#endif
