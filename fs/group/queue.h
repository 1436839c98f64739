/*
 * The ranks' queues of tasks, in the order of submission. A task stands in the queues of all its
 * ranks at once. A cell, a push, a removal and a reset are tasks.
 */
#ifndef QUEUE_H
#define QUEUE_H
#include "group/task.h"
#include "wire.h"

void task_submit(struct task *w);
/* Answers r when the task has ended, with the errno of its outcome. A signal interrupts the task.
 */
int task_wait(struct task *w, struct req *r);
/* Interrupts it: a queued one is dropped, a running one climbs the escalation at once. */
void task_interrupt(struct task *w);
/* Drops it if nothing of it runs. */
bool task_cancel(struct task *w, int error, const char *why);
/* Is what stands first in the queue sent at once? Not while the rank or its group starts, ends or
 * recovers. */
bool queue_goes_on(const struct rank *k);
/* Sends what can be sent to the ranks of the group. */
void queue_pump_all(struct group *g);
/* The ranks will not come back: everything in their queues fails with e. */
void queue_drop_all(struct group *g, const struct err *e);
/* The same for what was to be committed there, when its process has ended. */
void queue_lost(struct rank *k, const struct err *e);
/* The same for what has not begun. */
void queue_drop_queued(struct rank *k, const struct err *e);
void queue_drop_all_queued(struct group *g, const struct err *e);
/* The process that was there has ended with status 0: if it ran a program, that was its success. */
void queue_exited(struct rank *k);
/* Nmark for a subtask's tag. */
void queue_mark(struct rank *k, uint32_t tag, const struct spool_mark *at);
/* The process ended there: its running subtask's output ends here. */
void queue_mark_end(struct rank *k, const struct spool_mark *at);

#endif
