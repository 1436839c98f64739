/*
 * Hooks: what the folders above are told, which they install. One that is not set does nothing.
 * events.h has the calls within this folder.
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

/* before_task: a task is about to be submitted, so anything that must precede
 * it has to be submitted now. status_changed, error_changed, table_changed: what `status`, `error`
 * or a rank's table of variables shows has changed. output_grew: a stream of a rank has grown.
 * output_moved: output has begun or grown, or a cell has ended, so readers that follow it can
 * continue.
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
	void (*output_moved)(struct group *g);
	void (*cell_ended)(struct group *g);
	void (*cell_dropped)(struct cell *c);
	void (*task_waits)(struct task *w);
	void (*watch_news)(struct cell *c); /* or it has ended */
	void (*cell_news)(struct group *g, struct cell *c, enum cell_news what, int rank);
};

extern struct group_news group_news; /* in journal.c */

#define group_tell(hook, ...)                                                                      \
	do {                                                                                       \
		if (group_news.hook)                                                               \
			group_news.hook(__VA_ARGS__);                                              \
	} while (0)

#endif
