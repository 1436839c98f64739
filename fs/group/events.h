/*
 * What happens in this folder. Who sees it calls the function; a module above, which is named here,
 * defines it and acts on it. hooks.h has what the folders above are told.
 */
#ifndef EVENTS_H
#define EVENTS_H
#include "group/group.h"
#include "wire.h"

struct subtask;
struct task;

/* processes.c: a rank's process runs; it has joined the process group; it could not join; it is
 * gone, and nothing may be sent to it; after that, it has ended; it could not be started. */
void event_rank_started(struct rank *k);
void event_rank_ready(struct rank *k);
void event_rank_join_failed(struct rank *k, const struct err *e);
void event_rank_lost(struct rank *k, const struct err *why);
void event_rank_died(struct rank *k, const char *how);
void event_rank_spawn_failed(struct rank *k, const struct err *e);
/* processes.c: the store's process is listening; it has ended, or could not be started. */
void event_store_started(struct group *g);
void event_store_died(struct group *g, bool had_started, const struct err *e);

/* queue.c: the rank exited with status 0, before event_rank_died(); the output of its running task
 * begins here, and ends here. */
void event_rank_exited(struct rank *k);
void event_output_mark(struct rank *k, uint64_t tag, const struct spool_mark *at);
void event_output_end(struct rank *k, const struct spool_mark *at);

/* escalation.c: the interrupt of this cell or self-test has reached Python on this rank. */
void event_signal_taken(struct rank *k, uint32_t number);

/* steer.c: a task that was to begin within another one has begun by itself, or has ended; this rank
 * waits at this step of its cell with the cell `number`, step 0: it wants to go on. watch.c: the
 * same, and the expression of the cell `number` is this at FILE:N, with this error. save.c: a
 * subtask has ended. */
void event_task_over(struct task *w);
void event_steer_arrived(struct rank *k, uint32_t number, enum clock clock, uint32_t step);
void event_watch_reported(struct rank *k, uint32_t number, enum clock clock, uint32_t step,
    enum watched what, struct slice where, struct slice text);
void event_subtask_over(struct subtask *j);

/* stall.c: a task has begun. vain_wait.c: it has failed on a rank, and others, which work on it,
 * are given `grace`. */
void event_task_began(struct task *w);
void event_task_failed(struct task *w);
/* lifecycle.c: the process group has been rebuilt; the group may have become idle, or `idle` has
 * changed. */
void event_rebuilt(struct group *g);
void event_rested(struct group *g);

#endif
