/*
 * Work for ranks: every rank has a queue in the order of submission, a work stands in the queues of
 * all its ranks at once. A cell, a push, a removal, a reset are works.
 */
#ifndef QUEUE_H
#define QUEUE_H
#include "group/group.h"
#include "wire.h"

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
	double t0, t1;	   /* wall times */
	TAILQ_ENTRY(job) link;
};

struct work {
	enum work_kind kind;
	struct group *g;
	struct job *jobs;
	int n, left;	/* jobs; not yet done */
	int ready;	/* WORK_PUT: ranks that have answered the first question */
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
	uint64_t stall_seen; /* hash of the last look */
	int step;
	void (*ended)(struct work *w); /* who made it is told, and frees or keeps it */
	void *arg;
	TAILQ_ENTRY(work) link; /* among the group's works */
};

/* A work on these ranks (n numbers). ended() frees or keeps it. */
struct work *work_new(struct group *g, enum work_kind kind, const int *ranks, int n);
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
void work_close_fds(struct work *w);
void work_free(struct work *w);
/* Sends what can be sent to this rank, to all of the group. */
void queue_pump(struct rank *k);
void queue_pump_all(struct group *g);
/* The rank will not come back: everything in its queue fails with e. */
void queue_drop(struct rank *k, const struct err *e);
/* The same for what was to be committed there, when its process has ended. */
void queue_lost(struct rank *k, const struct err *e);
/* The same for what has not begun. */
void queue_drop_queued(struct rank *k, const struct err *e);
/* Nmark for a job's tag. */
void queue_mark(struct rank *k, uint32_t tag, const struct spool_mark *at);
/* The process ended there: its running job's output ends here. */
void queue_mark_end(struct rank *k, const struct spool_mark *at);
/* The job that runs on this rank, NULL: none. */
struct job *queue_running(struct rank *k);
/* Does it do something? What is decoded and waits for others does not count. */
bool queue_works(struct rank *k);
const char *work_state(const struct work *w); /* queued running ok error … */

#endif
