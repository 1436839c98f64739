/* A group: its settings, its ranks, its life. A state × event table in group.c; knows no FUSE. */
#ifndef GROUP_H
#define GROUP_H
#include "loop.h"
#include "spool.h"
#include "base/stream.h"
#include "base/req.h"

/* LOSSES_MAX: failures in a row to start or to meet, until the group is stopped */
enum { MAX_RANKS = 256, ERRORS_KEPT = 8, LOSSES_MAX = 3, NO_SLOT = -1, PHASES_MAX = 16 };

enum group_state { G_NEW, G_STARTING, G_READY, G_STOPPING, G_STOPPED, G_STATES };

enum rank_state { R_NONE, R_SPAWNING, R_BORN, R_INIT, R_READY, R_DEAD, R_STATES };

struct group;
struct agent;
struct job;
struct work;

/* What `ctl` sets. Strings are owned; times in seconds, negative: off. */
struct settings {
	long size; /* 0: one per GPU, 2 without GPUs */
	char *gpus, *backend, *python, *cwd, *preload;
	char *env; /* K=V lines */
	double timeout, grace, killafter, stall, idle;
	long history;
	long long spool; /* bytes of output kept for each stream; 0: all */
	bool autogc;
	bool external[MAX_RANKS]; /* these ranks are processes that others start */
};

struct rank {
	struct group *g;
	int number;
	enum rank_state state, died_as; /* died_as: what it was when its process ended */
	int slot;			/* at the agent; NO_SLOT: no process */
	pid_t pid;
	char how[16]; /* zygote, successor, cold */
	double since; /* wall time of the last change of state */
	struct spool_reader spool;
	struct spool_cursor tail;     /* how far the index was walked: near its end */
	uint64_t base[SPOOL_STREAMS]; /* what `: > stdout` and `spool` dropped */
	double output_time;	      /* wall time of the last growth */
	char *table;		      /* variables, as reported */
	char *last;	   /* how its last process ended: text; NULL: it lives, or never was */
	char *stderr_tail; /* the last of stderr of that process */
	bool waits_input;
	bool meets;		 /* its answer to the rebuild is out */
	bool doomed;		 /* SIGKILL is on its way: nothing more is sent there */
	TAILQ_HEAD(, job) queue; /* first: running if it was sent */
	int cell;		 /* number of the cell that runs, 0: none */
	int signalled;		 /* the last cell here of which an interrupt reached Python */
	bool raised;		 /* and was KeyboardInterrupt in its code */
	bool awaited;		 /* caller.c's mark */
};

struct phase {
	char name[32];
	double ms;
};

struct failure {
	uint64_t seq;
	double time;
	int no;
	char *what, *text;
};

/* What start, stop and restart made of it (group.c). */
struct group_life {
	enum group_state state;
	bool want_start, resume; /* start asked for; resume: as soon as the stop is done */
	uint64_t started, ready; /* now_ns of the last start, and when it was ready */
	struct phase phases[PHASES_MAX];
	int phase_count;
	struct err start_error;
	struct req_list waiters; /* of ctl */
	struct timer *stop_timer, *idle_timer;
};

/* The process group and its rebuilds (recovery.c). */
struct group_recovery {
	uint32_t generation;
	bool needed;		  /* the process group must be rebuilt before the next cell */
	bool broken;		  /* a rank died meanwhile */
	bool failed;		  /* the last rebuild failed on a rank */
	int consecutive_failures; /* ranks that died, or rebuilds that failed, in a row */
	uint64_t began;		  /* now_ns */
	struct timer *timer;
};

/* The process that holds the rendezvous store. */
struct group_store {
	int slot;
	pid_t pid;
	bool listening;
	uint32_t port; /* 0: that python has no torch */
};

/* What is told: events and failures. */
struct group_journal {
	struct stream *events; /* lines */
	uint64_t event_seq;
	struct failure errors[ERRORS_KEPT];
	uint64_t error_seq;
};

/* The cells so far. */
struct group_history {
	TAILQ_HEAD(cell_list, cell) cells;
	int last, count;
	char last_result[24]; /* of the last ended cell: ok, error … */
};

struct group {
	char *name;
	uint64_t serial; /* never used again */
	int refs;
	bool gone;
	struct settings set;
	struct group_life life;
	struct group_recovery recovery;
	struct group_store store;
	struct group_journal journal;
	struct group_history history;
	int size; /* of the ranks that are there */
	struct rank
	    *ranks; /* MAX_RANKS: open files and ended cells point there, whatever `size` does */
	struct agent *agent;
	uint32_t agent_serial; /* of the process that the ranks were started by */
	uint32_t zygote;
	char *run_dir;	      /* spools */
	int queued;	      /* works that have not begun */
	struct req_list live; /* parked readers of log, follow, stream, wait */
	double changed;	      /* wall time of the last change that `status` shows */
	TAILQ_ENTRY(group) link;
};

TAILQ_HEAD(group_list, group);
extern struct group_list groups;

int group_make(const char *name, struct err *e); /* 0 or -errno */
int group_remove(struct group *g, struct err *e);
struct group *group_find(const char *name);
struct group *group_ref(struct group *g);
void group_unref(struct group *g);
void group_remove_all(void);

/* A failure that a user made or meets: into `error` (and the log). what: the line or the file. */
void group_fail(struct group *g, const struct err *e, const char *what);
/* A line into `events`. */
void group_event(struct group *g, const char *fmt, ...) PRINTF(2, 3);
/* Something that `status` shows has changed: wakes who watches. */
void group_changed(struct group *g);
const char *group_state_name(const struct group *g);
bool group_busy(const struct group *g);
void group_make_ranks(
    struct group *g); /* as many as the settings want: new ones are without a process */
struct rank *group_rank(struct group *g, int k);

/* Events of the life cycle. start and stop say what shall be; group_settled tells when it is. */
int group_start(struct group *g, struct err *e);
int group_stop(struct group *g, struct err *e);
int group_restart(struct group *g, struct err *e);
/* Could a cell be queued now? 0, or -ESRCH with the text. */
int group_accepts(const struct group *g, struct err *e);
void group_phase(struct group *g, const char *name, double ms);
/* Nothing is to be done (any more): the clock of `idle` starts anew. */
void group_idle(struct group *g);
/* Is everything so that was asked for? */
bool group_settled(const struct group *g);
/* Do its ranks meet at a store? */
bool group_wants_store(const struct group *g);
/* Answers who waits for that, if it is so. */
void group_settle(struct group *g);
/* PARKED: r is answered when what was asked for is so, with the errno if it can't be. */
int group_wait(struct group *g, struct req *r, struct work *w);
/* SIGKILL to a rank's processes: a new one takes its place. */
void group_kill_rank(struct rank *k);
void group_rank_died(struct rank *k, const char *how);	     /* after rank_gone() */
void group_rank_unborn(struct rank *k, const struct err *e); /* it could not be started */
void group_store_died(struct group *g, const struct err *e);
/* What rank.c tells: the engine at this rank speaks. */
void group_rank_born(struct rank *k);
void group_rank_ready(struct rank *k);
void group_start_failed(struct group *g, const struct err *e);
void group_store_born(struct group *g, uint32_t port);

#endif
