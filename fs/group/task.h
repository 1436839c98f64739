/*
 * Tasks for ranks: a cell, a push, a removal, a reset. A task has a job on each of its ranks, which
 * stands in that rank's queue. The data and its texts are here, what moves it on is queue.c's.
 */
#ifndef TASK_H
#define TASK_H
#include "group/group.h"

enum work_kind { WORK_RUN, WORK_PUT, WORK_DEL, WORK_MOVE, WORK_RESET, WORK_FREE, WORK_KINDS };

enum job_state { JOB_QUEUED, JOB_SENT, JOB_PREPARED, JOB_COMMIT, JOB_DONE };

/* The part of a work on one rank. */
struct job {
	struct work *w;
	struct rank *k;
	enum job_state state;
	uint32_t tag;
	int outcome;			 /* enum outcome, for WORK_RUN */
	uint32_t collectives;		 /* of the default group, done in it */
	struct err err;			 /* no 0: went well */
	char *value, *error, *traceback; /* texts, "" if none */
	struct spool_mark begin, end;
	bool begun, ended; /* the marks are there */
	bool signalled;	   /* its rank was sent SIGINT */
	bool signal_taken; /* and has raised KeyboardInterrupt for it */
	bool killed;	   /* by the escalation */
	double t0, t1;	   /* wall times */
	TAILQ_ENTRY(job) link;
};

struct work {
	enum work_kind kind;
	struct group *g;
	struct job *jobs;
	int n, left;	/* jobs; not yet done */
	int ready;	/* in two steps: ranks that have answered the first question */
	struct err err; /* the outcome: the first failure */
	int first;	/* index of the first job that failed, -1 */
	bool begun, done, interrupted, dropped, timed_out;
	double t_queued, t_begin, t_end;
	struct req_list waiters; /* answered with err when it is done */
	/* what it carries */
	struct cell *cell; /* WORK_RUN */
	char *name, *view, *op, *to;
	int *fds; /* WORK_PUT: one a job, or one for all: fds[0] if fd_count == 1 */
	int fd_count;
	uint64_t *sizes;
	/* the escalation that frees its ranks */
	struct timer *escalation, *deadline, *stall_timer;
	uint64_t stall_seen;  /* hash of the last sample */
	uint64_t second_step; /* now_ns of its begin */
	int step;
	void (*ended)(struct work *w); /* who made it is told, and frees or keeps it */
	void *arg;
	TAILQ_ENTRY(work) link; /* among the group's works */
};

/* A cell: its number, its source, its ranks, its task. */
struct cell {
	struct group *g; /* not referenced: a cell lives in its group's history */
	int number, refs;
	bool gone;	/* dropped from the history; open files still read it */
	struct work *w; /* kept after its end */
	char *source;
	size_t source_len;
	int *ranks, n;
	TAILQ_ENTRY(cell) link;
};

/* A work on these ranks (n numbers). ended() frees or keeps it. */
struct work *work_new(struct group *g, enum work_kind kind, const int *ranks, int n);
/* Is it a program of its own (`# ddip run:`), rather than a cell of the session? */
bool work_is_program(const struct work *w);
/* Is it first made ready on all its ranks, and then done on all, or on none? Pushes, renaming. */
bool work_in_two_steps(const struct work *w);
void work_close_fds(struct work *w);
void work_free(struct work *w);
const char *work_state(const struct work *w); /* queued running ok error … */
/* The job that runs on this rank, NULL: none. */
struct job *queue_running(struct rank *k);
/* Does it do something? What is decoded and waits for others does not count. */
bool queue_works(struct rank *k);
bool group_busy(const struct group *g);

#endif
