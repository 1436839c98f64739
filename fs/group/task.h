/*
 * Tasks for ranks: a cell, a push, a removal, a reset, a self-test and so on. A task has a subtask
 * for each of its ranks, which is in that rank's queue. This module has their data and texts;
 * queue.c runs them.
 */
#ifndef TASK_H
#define TASK_H
#include "base/record.h"
#include "group/group.h"
#include "wire.h"

enum task_kind {
	TASK_RUN,
	TASK_PUT,
	TASK_DEL,
	TASK_MOVE,
	TASK_RESET,
	TASK_FREE,
	TASK_SELFTEST,
	TASK_CLONE,
	TASK_STEER, /* a cell that runs within another one */
	TASK_KINDS
};

enum subtask_state { SUBTASK_QUEUED, SUBTASK_SENT, SUBTASK_PREPARED, SUBTASK_COMMIT, SUBTASK_DONE };

/* How far the interrupt of a subtask has come. */
struct subtask_signal {
	bool sent;	 /* to its rank */
	bool taken;	 /* by Python there: the rank is not deaf */
	bool last_taken; /* also that of the last request */
	bool killed;	 /* its rank was killed by the escalation */
};

/* The part of a task on one rank. */
struct subtask {
	struct task *w;
	struct rank *k;
	uint64_t tag;
	enum subtask_state state;
	int outcome;	      /* enum outcome, for TASK_RUN */
	uint32_t collectives; /* of the default group in this subtask: COLLECTIVES_… */
	int no;		      /* errno of the failure; 0: none */
	/* "" if none; see task_set_text() */
	char *value, *error, *traceback, *digest;
	struct spool_mark begin, end;
	bool begun, ended; /* the marks begin and end are set */
	struct subtask_signal signal;
	double t0, t1; /* wall times */
	uint64_t sent; /* now_ns() */
	TAILQ_ENTRY(subtask) link;
};

/* The parameters of a task for its ranks. Strings and descriptors are owned. */
struct task_payload {
	char *name, *view, *op, *to;
	char *
	    path; /* TASK_PUT: of what is inside an object, as ranks are asked for it; NULL: name */
	int *fds; /* TASK_PUT: one for each subtask, or one for all if fd_count == 1; TASK_CLONE:
		   * one for all, once `source` is done */
	int fd_count;
	uint64_t *sizes;
	struct clone *clone;	/* TASK_CLONE */
	struct subtask *source; /* TASK_CLONE: of the rank that is copied */
	struct steer *steer;	/* it may begin within the cell before it; NULL: not any longer */
	bool held;		/* the same, but it must not begin by itself: it is about to fail */
	bool watches;		/* the same, as it is a watch: see watch.h */
};

struct task_times {
	double queued, begin, end; /* wall times */
	uint64_t begin_ns, end_ns; /* now_ns(): the wall clock may be set in between */
};

/* The state of unblocking (escalation.c, vain_wait.c) and watching (stall.c) a task's ranks. */
struct task_escalation {
	struct timer *timer, *deadline, *stall_timer, *ended_timer, *queued_timer;
	struct timer *vain_timer; /* vain_wait.c */
	uint64_t stall_seen;	  /* hash of the last sample */
	uint64_t stall_since;	  /* now_ns() of the first such sample */
	uint64_t stall_told;	  /* of the one of which an event has told, or stall_since */
	uint64_t *recorded;	  /* by rank, a hash of how far torch's recorders last said it is */
	bool stalled;		  /* nothing has moved for `stall` seconds, and a rank waits */
	uint64_t second_step;	  /* now_ns() when step 2 began */
	uint64_t asked; /* now_ns() of the last interrupt request, which covers all its ranks */
	int step;
	bool broken_within;	/* a steer within it was interrupted */
	bool in_new_processes;	/* a program that nothing has run before */
	bool disconnected;	/* ranks whose program has ended have no connections any more */
	enum interrupt_why why; /* its ranks are signalled */
	char *verdict;		/* of a stall that lasts, or that has ended with the task's
				 * failure; "" if none; see task_set_text() */
	bool timed_out;
};

/* The submission of a task, and the process that did it. */
struct task_owner {
	unsigned serial; /* counts the tasks that were submitted to the group */
	pid_t pid;	 /* 0: not known */
	uid_t uid;
	char *program; /* as it was then; "": not known */
};

struct task {
	enum task_kind kind;
	struct group *g;
	struct subtask *subtasks;
	int n, left;	/* number of subtasks; of those not yet done */
	int ready;	/* in two steps: subtasks that have finished the first */
	struct err err; /* the outcome: the first failure */
	int first;	/* index of the first subtask that failed; -1: none */
	bool begun, done;
	struct task_times when;
	struct req_list waiters; /* answered when the task is done: with err, or by answer() */
	void (*answer)(struct task *w, struct req *r); /* may be NULL */
	struct cell *cell;			       /* TASK_RUN */
	uint32_t number; /* of the cell or self-test, named by interrupts; 0: none */
	struct task_payload payload;
	struct task_escalation escalation;
	struct task_owner owner;
	void (*ended)(struct task *w); /* its creator's callback: frees or keeps it */
	void *arg;
};

/* A cell: its number, source, ranks and task. */
struct cell {
	struct group *g; /* borrowed: a cell lives in its group's history */
	int number, refs;
	bool gone;	/* dropped from the history; open files still read it */
	struct task *w; /* kept after it has ended */
	char *notice;	/* renewed.c, set when it begins; NULL: none */
	char *source;
	size_t source_len;
	int *ranks, n; /* ascending */

	enum clock clock; /* the setting when it began */

	struct {
		struct cell *cell; /* referenced: it has run within this one; NULL: in none */
		enum clock clock;
		uint32_t step;	 /* 0: a watch that has not stopped the ranks */
		bool stopped;	 /* a watch: the ranks, at this step */
		struct buf news; /* a watch: lines */
	} steered;

	TAILQ_ENTRY(cell) link;
};

/* Creates a task for these ranks. ended() frees or keeps it. */
struct task *task_new(struct group *g, enum task_kind kind, const struct rank_set *ranks);
/* This process of this user has submitted it; 0, -1: not known. before: what the same open file has
 * submitted before, or NULL; if that was the same process, its program is not looked up again. */
void task_set_owner(struct task *w, pid_t process, uid_t uid, const struct task *before);
/* Adds the numbers of its ranks; as text, a list with commas. */
void task_ranks(const struct task *w, struct record *out);
/* Is it a separate program (`# ddip run:`) rather than a cell of the session? */
bool task_is_program(const struct task *w);
/* The name of a clock. */
const char *task_clock(enum clock clock);
/* Is it a cell that runs, or waits to run, by itself or within another one? */
bool task_is_cell(const struct task *w);
/* May its ranks wait for each other in collectives? If so, it begins on all of them at once. */
bool task_has_collectives(const struct task *w);
/* Must all its ranks be free before it begins? Those with collectives, and a clone. */
bool task_begins_at_once(const struct task *w);
/* Is it a clone whose bytes are being read? */
bool task_awaits_bytes(const struct task *w);
/* Is it first prepared on all its ranks, then committed on all or none? True for pushes and
 * renames. */
bool task_in_two_steps(const struct task *w);
/* Must it be done on all its ranks? A removal or a reset cannot be undone: once it has begun, only
 * the end of its group stops it. */
bool task_must_end(const struct task *w);
/* Is it yet to begin on a rank, where it must be done? Then it cannot be interrupted. */
bool task_must_begin(const struct task *w);
void task_close_fds(struct task *w);
void task_stop_timers(struct task *w);
/* It is done: answers those who wait for it. */
void task_answer_all(struct task *w);
/* Replaces a text of a subtask. */
void task_set_text(char **to, struct slice s);
void task_free(struct task *w);
/* How long it has run, or ran. 0 if it has not begun. */
double task_seconds(const struct task *w);
const char *task_state(const struct task *w); /* queued running ok error … */
/* The subtask that has been sent to this rank and has not ended, or NULL. */
struct subtask *queue_running(struct rank *k);
/* The same, but of a cell that another one is run within, not of that one. */
struct subtask *queue_outermost(struct rank *k);
/* Is the rank working? A subtask that is prepared and waits for other ranks does not count. */
bool queue_works(struct rank *k);
bool group_busy(const struct group *g);

#endif
