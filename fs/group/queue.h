/*
 * Work for ranks: every rank has a queue in the order of submission, a work stands in the queues of
 * all its ranks at once. A cell, a push, a removal, a reset are works.
 */
#ifndef QUEUE_H
#define QUEUE_H
#include "group/task.h"
#include "wire.h"

void work_submit(struct work *w);
/* Answers r when the work has ended, with the errno of its outcome. A signal interrupts the work.
 */
int work_wait(struct work *w, struct req *r);
/* Interrupts it: a queued one is dropped, a running one climbs the escalation at once. */
void work_interrupt(struct work *w);
/* Drops it if nothing of it runs. */
bool work_cancel(struct work *w, int error, const char *why);
/* Drops it where it has not begun. True: that was its end, and it may be freed by now. */
bool work_drop_queued(struct work *w, int error, const char *why);
/* Sends what can be sent to this rank, to all of the group. */
void queue_pump(struct rank *k);
void queue_pump_all(struct group *g);
/* The rank will not come back: everything in its queue fails with e. */
void queue_drop(struct rank *k, const struct err *e);
/* The same for what was to be committed there, when its process has ended. */
void queue_lost(struct rank *k, const struct err *e);
/* The same for what has not begun. */
void queue_drop_queued(struct rank *k, const struct err *e);
/* The process that was there has ended with status 0: if it ran a program, that was its success. */
void queue_exited(struct rank *k);
/* Nmark for a job's tag. */
void queue_mark(struct rank *k, uint32_t tag, const struct spool_mark *at);
/* The process ended there: its running job's output ends here. */
void queue_mark_end(struct rank *k, const struct spool_mark *at);

#endif
