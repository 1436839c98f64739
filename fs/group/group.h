/*
 * The data structures of groups: groups, their ranks, and the parts of a group, each of which only
 * one module writes. hooks.h lists the callbacks that report what happens to them.
 */
#ifndef GROUP_H
#define GROUP_H
#include "base/req.h"
#include "base/stream.h"
#include "group/rank_set.h"
#include "loop.h"
#include "spool.h"
#include "wire.h"

enum { ERRORS_KEPT = 64, PHASES_MAX = 16, PATCHES_BYTES = 64 << 10 };

/* The states of the life cycle. The table of transitions is in lifecycle.c. */
enum group_state { G_NEW, G_STARTING, G_READY, G_STOPPING, G_RESTARTING, G_STOPPED, G_STATES };

enum rank_state { R_NONE, R_SPAWNING, R_STARTED, R_INIT, R_READY, R_DEAD, R_STATES };

/* Where the names in the ranks' namespaces come from. */
enum group_names { NAMES_EMPTY, NAMES_PROGRAM, NAMES_CELLS };

struct group;
struct agent;
struct subtask;
struct var_table;
struct arrivals;
struct cell;
struct facts;

/* Where ranks run (host_settings.c). Strings are owned. */
struct host_settings {
	char *names;		    /* NAME:SLOTS, separated by blanks; "": this machine */
	char *launcher;		    /* a command, as words; "": ssh */
	char *engine, *master_addr; /* "": not set */
	double linger;		    /* seconds */
};

/* What a preemption does (preempt.c). */
struct preempt_settings {
	int signo;     /* the signal that tells of one; 0: none */
	char *save;    /* the directory to save to before; owned, "": none */
	double within; /* seconds that the save may take */
};

/* The settings that the ranks' processes are told. */
struct rank_settings {
	bool autogc;
	int clock; /* enum clock of the next cells; CLOCKS: the best that ticks */
};

/* What `ctl` sets (settings.c). Strings are owned. Times are in seconds; negative means off. */
struct settings {
	long long size; /* 0: one per GPU, 2 without GPUs */
	char *gpus, *backend, *python, *cwd, *preload;
	char *env; /* K=V lines */
	struct host_settings hosts;
	double timeout, grace, killafter, stall, idle;
	long long history;
	long long spool; /* bytes of output to keep per stream; 0: all */
	bool cwd_is_set; /* `cwd` is not the default */
	bool quiet;
	struct rank_settings rank;
	struct preempt_settings on_preempt;
	struct rank_set external; /* whose processes are started by someone else (external.c) */
};

/* A machine that ranks run on (hosts.c). */
struct host {
	char *name;	       /* as in `hosts`; "": this machine, when no hosts are named */
	int slots;	       /* number of ranks that it has room for */
	struct agent *agent;   /* held with agent_hold(); NULL: not started yet */
	uint32_t agent_serial; /* of the agent process that started its ranks */
	uint32_t zygote;
	bool lost;	  /* its agent ended while ranks ran there: no new ones are placed on it */
	int living;	  /* ranks with a process there; valid only inside hosts_set() */
	int ranks, index; /* ranks placed there; its position among the hosts that have ranks */
};

/* What a rank has printed (output.c). */
struct rank_output {
	struct spool_reader spool;
	struct spool_cursor tail;     /* how far the index has been read: near its end */
	struct spool_mark seen;	      /* where it was at the last look, if nobody watches */
	struct spool_mark cut;	      /* what spool_trim() drops next */
	uint64_t base[SPOOL_STREAMS]; /* bytes dropped by `: > stdout` and `spool` */
	uint64_t last[2]; /* where in stderr the last cell, or process, began and ended */
	double time;	  /* wall time of the last growth */
	uint64_t time_ns; /* the same as now_ns(); 0: none yet */
	bool known;	  /* a rank with this number has existed: its output is kept */
	struct spool_writer *writer; /* for a process on another host; NULL: the agent writes */
};

/* A rank's standard input. */
struct rank_input {
	uint8_t waits; /* enum input_wait: what the program is waiting for */
	size_t unread; /* bytes that the program has not read yet */
};

/* How a rank's last process ended. */
struct rank_end {
	char *how;	   /* NULL: none has ended */
	char *stderr_tail; /* the end of what its last cell wrote to stderr; NULL: as above */
	char *wrong;	   /* what it did wrong and was killed for; NULL: nothing */
	size_t names;	   /* variables lost with it (renewed.c); 0: none, or told already */
	int cell;	   /* that ran then, or had run last */
	bool replaced;	   /* and it has not got another rank's variables since */
};

/* One rank and its process (rank.c). */
struct rank {
	struct group *g;
	int number;
	enum rank_state state;
	enum rank_state died_as; /* its state when its process ended, until rank_set_dead() */
	struct host *host;	 /* where it runs, or last ran; NULL: never placed */
	int local_rank;		 /* its index on that host */
	int slot;		 /* in the host's agent; NO_SLOT: no process */
	pid_t pid;
	char spawn_method[16]; /* zygote, successor, cold */
	double since;	       /* wall time of the last state change */
	struct facts *facts;   /* what its Python has (facts.c); NULL: not reported yet */
	struct rank_output output;
	struct var_table *table; /* its variables, as last reported */
	struct rank_end end;
	struct rank_input input;
	bool rejoining; /* recovery.c: it has yet to answer the rebuild request */
	bool kill_sent; /* SIGKILL has been sent: no more work is sent to it */
	TAILQ_HEAD(subtask_queue, subtask) queue; /* queue.c; first: running if it was sent */
	int cell;				  /* number of the running cell; 0: none */
	bool awaited;				  /* a mark of tree/caller.c */
};

struct phase {
	char name[32];
	double ms;
};

/* An entry in `error`. */
struct failure {
	uint64_t seq;
	double time; /* wall time of the latest occurrence */
	unsigned times;
	int no, rank; /* rank: that it is of; -1: of no one rank */
	char *what, *text;
};

/* The progress and the outcome of start, stop and restart (lifecycle.c). */
struct group_life {
	enum group_state state;
	uint64_t started, ready; /* now_ns() at the last start, and when it became ready */
	struct phase phases[PHASES_MAX];
	int phase_count;
	struct buf patches;	/* lines of `status` that ranks have reported since the start */
	const char *backend;	/* chosen at the start (facts.c); NULL: not yet */
	struct err start_error; /* why the last start failed */
	struct req_list waiters, start_waiters; /* parked on ctl; start_waiters wait for a start */
	struct timer *stop_timer, *idle_timer;
	uint64_t preempted; /* now_ns() at the last preemption signal; 0: none */
	bool saves;	    /* what on_preempt saves before the cells are told */
};

/* The process group and its rebuilds (recovery.c). */
enum recovery_state {
	RECOVERY_WHOLE,
	RECOVERY_WANTED,    /* the process group must be rebuilt before the next cell */
	RECOVERY_REJOINING, /* the ranks join again */
	RECOVERY_RETRY,	    /* the same, but one of them could not */
	RECOVERY_SPOILED,   /* the same, but one of them or the store has died since */
	RECOVERY_STATES
};

struct group_recovery {
	uint32_t generation;
	enum recovery_state state;
	int rejoining;		  /* ranks that have not answered yet */
	int consecutive_failures; /* rank deaths or failed rebuilds in a row */
	uint64_t began;		  /* now_ns() */
	struct timer *timer;
};

/* The process that holds the rendezvous store (store.c). */
struct group_store {
	struct host *host; /* where it runs, or last ran; NULL: nowhere yet */
	int slot;
	pid_t pid;
	bool listening;
	bool moved;    /* to another host since the group was started */
	uint32_t port; /* 0: not yet known, or that Python has no torch */
	char *wrong;   /* why it ends; NULL: it has not said */
};

/* Where ranks may run (hosts.c). */
struct group_hosts {
	struct host **list;  /* in the order of `hosts`; at least one */
	int n, used;	     /* used: number of hosts that have ranks */
	bool outdated;	     /* the setting was changed while processes were still running */
	bool lacking;	     /* the ranks of a lost host have no place to run */
	struct timer *timer; /* processes.c: about to place them */
};

/* Events and failures (journal.c), and which output came when. */
struct group_journal {
	struct stream *events;	   /* lines */
	struct arrivals *arrivals; /* arrivals.c; NULL: nothing was printed yet */
	uint64_t event_seq;
	struct failure errors[ERRORS_KEPT]; /* newest last */
	int error_count;
	uint64_t error_seq;
	double changed; /* wall time of the last change that `status` shows */
};

/* The history of cells (cell.c). */
struct group_history {
	TAILQ_HEAD(cell_list, cell) cells; /* those that have ended: in the order of their ends */
	int last, ended;     /* the highest number; how many of the cells have ended */
	struct cell **index; /* the same cells by number, from index_first up to index_end */
	size_t index_first, index_end, index_room;
	char last_result[24]; /* of the last cell that ended: ok, error … */
	enum group_names names;
	int steered; /* the last one that came by `steer`; 0: none */
	int watched; /* the same of `watch` */

	struct {
		enum clock clock;
		uint32_t number; /* 0: it had made none */
		int cell;
	} step; /* of the first rank of this cell when it was last asked: tree/steps_file.c */

	unsigned submitted; /* number of tasks of all kinds so far */
};

struct group {
	char *name;
	uint64_t serial; /* never reused */
	int refs;
	bool gone;
	struct settings set;
	struct group_life life;
	struct group_recovery recovery;
	struct group_store store;
	struct group_journal journal;
	struct group_history history;
	int size; /* number of ranks now */
	/* MAX_RANKS entries that never move: open files and ended cells point at them, whatever
	 * `size` is */
	struct rank *ranks;
	struct group_hosts hosts;
	SLIST_HEAD(facts_list, facts) facts; /* facts.c: all that the ranks have reported */
	char *run_dir;			     /* spools */
	char *selftest;	      /* the report of the last one (selftest.c); NULL: none has ended */
	int queued;	      /* number of tasks that have not begun (queue.c) */
	bool queue_held;      /* nothing is sent to the ranks now (queue.c) */
	struct req_list live; /* parked readers of log, follow, stream and wait */
	TAILQ_ENTRY(group) link;
};

/* Prints a row of a table of states, of a group's life (lifecycle.c) or of its process group
 * (recovery.c). help: NULL if the event has no effect. */
static inline void
step_print(
    struct buf *out, const char *state, const char *event, const char *next, const char *help)
{
	if (help)
		buf_addf(out, "%-10s %-9s %-10s %s\n", state, event, next, help);
}

/* The rank with this number, or NULL if it does not exist (any longer). */
static inline struct rank *
group_rank(struct group *g, int number)
{
	return number >= 0 && number < g->size ? &g->ranks[number] : NULL;
}

/* The agent that runs, or last ran, this rank's process; NULL if it has none. */
static inline struct agent *
rank_agent(const struct rank *k)
{
	return k->host ? k->host->agent : NULL;
}

#endif
