/*
 * The data of groups: groups, their ranks, and the parts of a group, each written by one module.
 * hooks.h says who hears of what happens to them.
 */
#ifndef GROUP_H
#define GROUP_H
#include "base/req.h"
#include "base/stream.h"
#include "loop.h"
#include "spool.h"

enum { MAX_RANKS = 16384, ERRORS_KEPT = 64, PHASES_MAX = 16 };

/* Of the life cycle; the table of what leads from one to the other is in lifecycle.c. */
enum group_state { G_NEW, G_STARTING, G_READY, G_STOPPING, G_RESTARTING, G_STOPPED, G_STATES };

enum rank_state { R_NONE, R_SPAWNING, R_STARTED, R_INIT, R_READY, R_DEAD, R_STATES };

/* What made the names that the ranks hold now. */
enum group_names { NAMES_EMPTY, NAMES_PROGRAM, NAMES_CELLS };

struct group;
struct agent;
struct subtask;
struct var_table;
struct cell;

/* Where ranks run (host_settings.c). Strings are owned. */
struct host_settings {
	char *names;		    /* NAME:SLOTS, divided by blanks; "": this machine */
	char *launcher;		    /* words; "": ssh */
	char *engine, *master_addr; /* "": none is set */
	double linger;		    /* seconds */
};

/* What `ctl` sets (settings.c). Strings are owned; times in seconds, negative: off. */
struct settings {
	long size; /* 0: one per GPU, 2 without GPUs */
	char *gpus, *backend, *python, *cwd, *preload;
	char *env; /* K=V lines */
	struct host_settings hosts;
	double timeout, grace, killafter, stall, idle;
	long history;
	long long spool; /* bytes of output kept for each stream; 0: all */
	bool autogc;
	int on_preempt; /* a signal; 0: none */
	bool *external; /* which ranks are processes that others start */
	int external_n; /* ranks from there on are not */
};

/* A machine that ranks run on (hosts.c). */
struct host {
	char *name;	       /* as in `hosts`; "": this machine, where nobody named any */
	int slots;	       /* ranks that it has room for */
	struct agent *agent;   /* held; NULL: not started yet */
	uint32_t agent_serial; /* of the process that its ranks were started by */
	uint32_t zygote;
	bool lost;	  /* its agent ended while ranks were there: it gets no other ones */
	int living;	  /* ranks that have a process there; only while `hosts` is set */
	int ranks, index; /* that are placed there; among the hosts that have ranks */
};

/* What a rank has printed (output.c). */
struct rank_output {
	struct spool_reader spool;
	struct spool_cursor tail;     /* how far the index was walked: near its end */
	uint64_t base[SPOOL_STREAMS]; /* what `: > stdout` and `spool` dropped */
	double time;		      /* wall time of the last growth */
	bool known; /* there was a rank of this number: what it has printed stays */
};

/* Its standard input. */
struct rank_input {
	bool waits;    /* its program does, for more */
	size_t unread; /* bytes that its program has not taken */
};

/* One rank and its process (rank.c). */
struct rank {
	struct group *g;
	int number;
	enum rank_state state;
	enum rank_state died_as; /* what it was when its process ended, until that is told */
	struct host *host;	 /* where it runs, or ran last; NULL: it was never placed */
	int local_rank;		 /* there */
	int slot;		 /* at the host's agent; NO_SLOT: no process */
	pid_t pid;
	char spawn_method[16]; /* zygote, successor, cold */
	double since;	       /* wall time of the last change of state */
	struct rank_output output;
	struct var_table *table; /* variables, as reported */
	char *last_exit;   /* how its last process ended: text; NULL: it lives, or never was */
	char *stderr_tail; /* the last of stderr of that process */
	struct rank_input input;
	bool rejoining; /* recovery.c: its answer to the rebuild is still to come */
	bool kill_sent; /* SIGKILL is on its way: nothing more is sent there */
	TAILQ_HEAD(subtask_queue, subtask) queue; /* queue.c; first: running if it was sent */
	int cell;				  /* number of the cell that runs, 0: none */
	bool awaited;				  /* caller.c's mark */
};

struct phase {
	char name[32];
	double ms;
};

/* An entry of `error`. */
struct failure {
	uint64_t seq;
	double time; /* wall time, of the last one */
	unsigned times;
	int no;
	char *what, *text;
};

/* What start, stop and restart made of it (lifecycle.c). */
struct group_life {
	enum group_state state;
	uint64_t started, ready; /* now_ns of the last start, and when it was ready */
	struct phase phases[PHASES_MAX];
	int phase_count;
	struct err start_error;			/* why the last start came to nothing */
	struct req_list waiters, start_waiters; /* of ctl; these are for a start */
	struct timer *stop_timer, *idle_timer;
	uint64_t preempted; /* now_ns of the last signal that said so; 0: none has */
};

/* The process group and its rebuilds (recovery.c). */
struct group_recovery {
	uint32_t generation;
	bool needed;		  /* the process group must be rebuilt before the next cell */
	bool broken;		  /* a rank died meanwhile */
	bool failed;		  /* the last rebuild failed on a rank */
	int rejoining;		  /* ranks whose answer is still to come */
	int consecutive_failures; /* ranks that died, or rebuilds that failed, in a row */
	uint64_t began;		  /* now_ns */
	struct timer *timer;
};

/* The process that holds the rendezvous store (store.c). */
struct group_store {
	struct host *host; /* where it runs, or ran last; NULL: nowhere yet */
	int slot;
	pid_t pid;
	bool listening;
	uint32_t port; /* 0: that python has no torch */
};

/* Where ranks may run (hosts.c). */
struct group_hosts {
	struct host **list;  /* in the order of `hosts`; one at least */
	int n, used;	     /* used: how many have ranks */
	bool outdated;	     /* the setting was changed while processes were left */
	bool lacking;	     /* ranks of a host that is lost have no place */
	struct timer *timer; /* processes.c: they are to be placed */
};

/* Events and failures (journal.c). */
struct group_journal {
	struct stream *events; /* lines */
	uint64_t event_seq;
	struct failure errors[ERRORS_KEPT]; /* the latest last */
	int error_count;
	uint64_t error_seq;
	double changed; /* wall time of the last change that `status` shows */
};

/* The cells so far (cell.c). */
struct group_history {
	TAILQ_HEAD(cell_list, cell) cells;
	int last, count;
	struct cell **index; /* the same from index_first to index_end, by number */
	size_t index_first, index_end, index_room;
	char last_result[24]; /* of the last ended cell: ok, error … */
	enum group_names names;
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
	struct group_hosts hosts;
	char *run_dir;	      /* spools */
	char *selftest;	      /* the text of the last one (selftest.c); NULL: none has ended */
	int queued;	      /* tasks that have not begun (queue.c) */
	struct req_list live; /* parked readers of log, follow, stream, wait */
	TAILQ_ENTRY(group) link;
};

/* The rank of this number, NULL: there is none (any more). */
static inline struct rank *
group_rank(struct group *g, int number)
{
	return number >= 0 && number < g->size ? &g->ranks[number] : NULL;
}

/* The agent that this rank's process is, or was, at; NULL: it never had one. */
static inline struct agent *
rank_agent(const struct rank *k)
{
	return k->host ? k->host->agent : NULL;
}

#endif
