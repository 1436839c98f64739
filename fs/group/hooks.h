/*
 * Hooks: callbacks through which a module notifies the modules above it without depending on them.
 * wiring.c (group_init) connects the hooks within this folder; the folders above install their own.
 * A hook that is not set does nothing.
 */
#ifndef HOOKS_H
#define HOOKS_H
#include "group/group.h"
#include "wire.h"

struct cell;
struct task;

/* What has happened to a cell. FAILED: on the first of its ranks that did. STALLED: nothing has
 * moved for a while, and a rank waits in a collective. INPUT: a rank waits for input. */
enum cell_news { CELL_BEGAN, CELL_ENDED, CELL_FAILED, CELL_STALLED, CELL_INPUT, CELL_PREEMPTED };

/* For the layers above. before_task: a task is about to be submitted, so anything that must precede
 * it has to be submitted now. status_changed, error_changed, table_changed: what `status`, `error`
 * or a rank's table of variables shows has changed. output_grew: a stream of a rank has grown.
 * cell_ended: a cell has ended. cell_dropped: it has left the history, and the tree or an open file
 * still refers to it. task_waits: somebody has waited for a while for a task that some
 * rank has not begun. cell_news: something has happened to a cell, on this rank (-1: on no one
 * rank); c is NULL for a preemption while no cell runs. */
struct group_news {
	void (*before_task)(struct group *g);
	void (*status_changed)(struct group *g);
	void (*error_changed)(struct group *g);
	void (*table_changed)(
	    struct rank *k, const struct var_table *before, const struct var_table *now);
	void (*output_grew)(struct rank *k, int stream);
	void (*cell_ended)(struct group *g);
	void (*cell_dropped)(struct cell *c);
	void (*task_waits)(struct task *w);
	void (*watch_news)(struct cell *c); /* or it has ended */
	void (*cell_news)(struct group *g, struct cell *c, enum cell_news what, int rank);
};

/* What steer.c and watch.c are told. */
struct steer_hooks {
	/* A task that was to begin within another one has begun by itself, or has ended; a subtask
	 * has ended. */
	void (*over)(struct task *w);
	void (*part_over)(struct subtask *j);
	/* This rank waits at this step of its cell with the cell `number`, step 0: it wants to go
	 * on; the same, and the expression of the cell `number` is this at FILE:N, with this error.
	 */
	void (*arrived)(struct rank *k, uint32_t number, enum clock clock, uint32_t step);
	void (*watched)(struct rank *k, uint32_t number, enum clock clock, uint32_t step,
	    enum watched what, struct slice where, struct slice text);
};

struct group_hooks {
	/* rank.c and rank_request.c report on a rank's process: it runs; it has joined the process
	 * group; it could not join; it is gone, and nothing may be sent to it; after that, it has
	 * ended; it could not be started. */
	void (*rank_started)(struct rank *k);
	void (*rank_ready)(struct rank *k);
	void (*rank_join_failed)(struct rank *k, const struct err *e);
	void (*rank_lost)(struct rank *k, const struct err *why);
	void (*rank_exited)(struct rank *k); /* called before rank_died: it exited with status 0 */
	void (*rank_died)(struct rank *k, const char *how);
	void (*rank_spawn_failed)(struct rank *k, const struct err *e);
	/* The store's process is listening; it has ended, or could not be started. */
	void (*store_started)(struct group *g);
	void (*store_died)(struct group *g, bool had_started, const struct err *e);
	/* The output of the running task begins or ends here. */
	void (*output_mark)(struct rank *k, uint64_t tag, const struct spool_mark *at);
	void (*output_end)(struct rank *k, const struct spool_mark *at);
	/* The interrupt of this cell has reached Python on this rank. */
	void (*signal_taken)(struct rank *k, uint32_t cell);
	struct steer_hooks steer;
	/* recovery.c: the process group has been rebuilt. */
	void (*recovered)(struct group *g);
	/* A task has begun; output has begun or grown, or a cell has ended, so readers that follow
	 * it can continue; the group may have become idle. */
	void (*task_began)(struct task *w);
	void (*output_moved)(struct group *g);
	void (*rested)(struct group *g);
	struct group_news above;
};

extern struct group_hooks group_hooks; /* in journal.c */

#define group_tell(hook, ...)                                                                      \
	do {                                                                                       \
		if (group_hooks.hook)                                                              \
			group_hooks.hook(__VA_ARGS__);                                             \
	} while (0)

#endif
