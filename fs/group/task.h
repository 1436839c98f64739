/*
 * Tasks for ranks: a cell, a push, a removal, a reset, a self-test. A task has a subtask on each of
 * its ranks, which stands in that rank's queue. Their data and texts are here; queue.c moves them
 * on.
 */
#ifndef TASK_H
#define TASK_H
#include "group/group.h"

enum task_kind {
	TASK_RUN,
	TASK_PUT,
	TASK_DEL,
	TASK_MOVE,
	TASK_RESET,
	TASK_FREE,
	TASK_SELFTEST,
	TASK_KINDS
};

enum subtask_state { SUBTASK_QUEUED, SUBTASK_SENT, SUBTASK_PREPARED, SUBTASK_COMMIT, SUBTASK_DONE };

/* The part of a task on one rank. */
struct subtask {
	struct task *w;
	struct rank *k;
	enum subtask_state state;
	uint32_t tag;
	int outcome;			 /* enum outcome, for TASK_RUN */
	uint32_t collectives;		 /* of the default group, done in it */
	int no;				 /* errno of what went wrong, 0: nothing */
	char *value, *error, *traceback; /* texts, "" if none: task_set_text() */
	struct spool_mark begin, end;
	bool begun, ended; /* the marks are there */
	bool signalled;	   /* its rank was sent SIGINT */
	bool signal_taken; /* and has raised KeyboardInterrupt for it */
	bool killed;	   /* by the escalation */
	double t0, t1;	   /* wall times */
	TAILQ_ENTRY(subtask) link;
};

/* What a task carries to its ranks. Strings and descriptors are owned. */
struct task_payload {
	char *name, *view, *op, *to;
	int *fds; /* TASK_PUT: one for each subtask, or one for all: fds[0] if fd_count == 1 */
	int fd_count;
	uint64_t *sizes;
};

/* Wall times. */
struct task_times {
	double queued, begin, end;
};

/* How its ranks are unblocked (escalation.c), and watched (stall.c). */
struct task_escalation {
	struct timer *timer, *deadline, *stall_timer;
	uint64_t stall_seen;  /* hash of the last sample */
	uint64_t second_step; /* now_ns of its begin */
	uint64_t asked; /* now_ns of the last request to interrupt it: one for all its ranks */
	int step;
	bool preempt; /* what its ranks are signalled for is a preemption */
};

struct task {
	enum task_kind kind;
	struct group *g;
	struct subtask *subtasks;
	int n, left;	/* subtasks; not yet done */
	int ready;	/* in two steps: ranks that have answered the first question */
	struct err err; /* the outcome: the first failure */
	int first;	/* index of the first subtask that failed, -1 */
	bool begun, done, dropped, timed_out;
	struct task_times when;
	struct req_list waiters; /* answered with err when it is done */
	struct cell *cell;	 /* TASK_RUN */
	uint32_t number; /* of the cell, or of the self-test: what interrupts name; 0: none */
	struct task_payload payload;
	struct task_escalation escalation;
	void (*ended)(struct task *w); /* who made it is told, and frees or keeps it */
	void *arg;
};

/* A cell: its number, its source, its ranks, its task. */
struct cell {
	struct group *g; /* not referenced: a cell lives in its group's history */
	int number, refs;
	bool gone;	/* dropped from the history; open files still read it */
	struct task *w; /* kept after its end */
	char *source;
	size_t source_len;
	int *ranks, n; /* ascending */
	TAILQ_ENTRY(cell) link;
};

/* A task for these ranks (n numbers). ended() frees or keeps it. */
struct task *task_new(struct group *g, enum task_kind kind, const int *ranks, int n);
/* Is it a program of its own (`# ddip run:`), rather than a cell of the session? */
bool task_is_program(const struct task *w);
/* Do its ranks wait for each other in collectives? Then it begins on all of them at once. */
bool task_has_collectives(const struct task *w);
/* Is it first made ready on all its ranks, and then done on all, or on none? Pushes, renaming. */
bool task_in_two_steps(const struct task *w);
void task_close_fds(struct task *w);
/* Puts a text in the place of another one of a subtask. */
void task_set_text(char **to, struct slice s);
void task_free(struct task *w);
const char *task_state(const struct task *w); /* queued running ok error … */
/* The subtask that runs on this rank, NULL: none. */
struct subtask *queue_running(struct rank *k);
/* Does it do something? What is decoded and waits for others does not count. */
bool queue_works(struct rank *k);
bool group_busy(const struct group *g);

#endif
