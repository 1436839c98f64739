/*
 * Functions through which a module reports news to modules above it, which it does not know.
 * wiring.c connects those within this folder (group_init); the folders above add theirs. A hook
 * that is not set does nothing.
 */
#ifndef HOOKS_H
#define HOOKS_H
#include "group/group.h"

struct task;

/* For the layers above: what `status`, `error` and the table of a rank's variables show has
 * changed; a stream of a rank has grown; a cell has ended; a task is about to be submitted, behind
 * which nothing comes any more that was to be before it. */
struct group_news {
	void (*before_task)(struct group *g);
	void (*status_changed)(struct group *g);
	void (*error_changed)(struct group *g);
	void (*table_changed)(
	    struct rank *k, const struct var_table *before, const struct var_table *now);
	void (*output_grew)(struct rank *k, int stream);
	void (*cell_ended)(struct group *g);
};

struct group_hooks {
	/* rank.c tells of a rank's process: it runs; it has joined the process group; it could not
	 * join; it is gone, and nothing may be sent there; so it has ended; it could not be
	 * started. */
	void (*rank_started)(struct rank *k);
	void (*rank_ready)(struct rank *k);
	void (*rank_join_failed)(struct rank *k, const struct err *e);
	void (*rank_lost)(struct rank *k, const struct err *why);
	void (*rank_exited)(struct rank *k); /* so it has ended, by itself and with status 0 */
	void (*rank_died)(struct rank *k, const char *how);
	void (*rank_spawn_failed)(struct rank *k, const struct err *e);
	/* The store's process listens; it has ended, or could not be started. */
	void (*store_started)(struct group *g);
	void (*store_died)(struct group *g, bool had_started, const struct err *e);
	/* Where the output of the running task begins and ends. */
	void (*output_mark)(struct rank *k, uint32_t tag, const struct spool_mark *at);
	void (*output_end)(struct rank *k, const struct spool_mark *at);
	/* The interrupt of this cell has reached Python there. */
	void (*signal_taken)(struct rank *k, uint32_t cell);
	/* recovery.c: the process group works again. */
	void (*recovered)(struct group *g);
	/* queue.c: a task has begun; one has ended, or its output has begun, so who follows may go
	 * on; perhaps nothing is to be done any more. */
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
