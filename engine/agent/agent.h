/*
 * The agent of a host: what its modules share. It runs no Python: zygotes and ranks are its
 * children.
 *
 *   agent.c  the control connection: one row per message
 *   zygote_pool.c  which zygotes, successors and spares there are
 *   zygote.c  one zygote: its process, its age
 *   spawn.c  a new engine: descriptors, fork by the zygote, or exec
 *   drain.c  moves what engines print from ring and pipes to spools
 *   gpus.c   what NVML says here
 *   reap.c   processes that have died, and the end of the agent
 */
#ifndef AGENT_H
#define AGENT_H
#include "conn.h"
#include "spool.h"
#include "output_ring.h"
#include <sys/queue.h>
#include <sys/types.h>

struct zygote_pool;

/* One process that forks ranks. */
struct zygote {
	struct zygote_pool *pool;
	struct conn *conn;
	pid_t pid;
	uint32_t tag; /* of the Tfork that made it, 0: it was executed */
	bool ready, successor, spare;
	bool taken;	       /* a spare that becomes an engine now */
	bool retired;	       /* told to quit, waited for */
	char *paths;	       /* what ages it, each ended by NUL, then an empty one */
	struct timespec *ages; /* their mtimes when it was started */
	size_t n_paths;
	TAILQ_ENTRY(zygote) link;
};

/* What the daemon asked for by Tzygote: python, environment, directory, modules. */
struct zygote_pool {
	uint32_t id;
	char *python, *cwd, *preload;
	struct buf env;		   /* K=V, each ended by NUL */
	struct zygote *now, *next; /* now serves; next, its successor, will */
	uint32_t tag;		   /* of the Tzygote that is not answered yet, 0: none */
	int err_in, err_out;	   /* the pipe that its zygotes' stdout and stderr are */
	struct watch *err_watch;
	struct buf tail; /* the last they said */
	struct timer *idle;
	struct buf phases;
	bool successor_requested; /* a successor was asked for since `now` was started */
	unsigned spares;	  /* processes to be held ready for the next start like the last */
	TAILQ_ENTRY(zygote_pool) link;
};

enum engine_state { ENGINE_WAITS, ENGINE_FORKS, ENGINE_RUNS, ENGINE_ENDED };

/* What it prints, on its way into the spools (drain.c). */
struct engine_output {
	struct spool_writer spool;
	bool spooled;
	uint64_t err_start; /* size of stderr before this engine */

	struct outlet {
		struct engine *e;
		int fd; /* read end, -1: closed */
		struct watch *watch;
	} outlet[SPOOL_STREAMS];

	int wakeup_fd;
	struct watch *wakeup_watch;
	struct output_ring *ring;
	uint64_t head; /* our copy of what the ring says: the rank could change that */
	uint32_t switch_head, kind_now;
	struct timer *look;    /* at the ring again */
	struct timer *linger;  /* dead: the last frames are awaited */
	uint64_t told_dropped; /* by Ndropped */
};

/* A rank or a store. */
struct engine {
	uint16_t slot;
	uint8_t kind;
	enum engine_state state;
	pid_t pid; /* 0: not known yet */
	uint32_t tag;
	bool cold;
	struct zygote_pool *pool;
	struct zygote *zygote; /* that was asked to fork it, until it answers */
	char *name, *dir;
	struct buf env;
	struct conn *conn;	    /* NULL: closed by the engine */
	int given[ENGINE_FDS], ctl; /* the engine's ends, until it has them; -1 */
	struct engine_output output;
	int signal; /* to be sent as soon as there is a process */
	int status; /* of wait(2), when ended */
	TAILQ_ENTRY(engine) link;
};

struct agent {
	struct loop *loop;
	struct conn *up; /* the daemon */
	bool greeted;
	int user_umask;	      /* of whoever mounted, for zygotes and ranks; -1: as ours */
	long long user_files; /* limit of open files, likewise */
	TAILQ_HEAD(engines, engine) engines;
	TAILQ_HEAD(pools, zygote_pool) pools;
	TAILQ_HEAD(zygotes, zygote) zygotes;

	struct { /* exits of processes that nobody knows yet: a fork's answer may come later */
		pid_t pid;
		int status;
	} unclaimed[64];

	unsigned n_unclaimed;
};

extern struct agent agent; /* there is one per process */

/* Serves the daemon on descriptors 0 and 1 until they end. Returns the exit status. */
int agent_main(void);
/* Rerror to the daemon. */
void agent_refuse(unsigned slot, uint32_t tag, const struct err *e);
struct slice agent_text(const char *s);

/* zygote_pool.c */
void zygote_pool_ask(struct msg *m);	 /* Tzygote */
void zygote_pool_release(struct msg *m); /* Nrelease */
struct zygote_pool *zygote_pool_find(uint32_t id);
/* A zygote that is ready to fork (or a spare of it), else NULL: one is on its way, and
 * spawn_ready/spawn_failed will tell. */
struct zygote *zygote_pool_take(struct zygote_pool *pool);
/* Something of a start happened: the successor waits until it is quiet. */
void zygote_pool_busy(struct zygote_pool *pool);
/* Is this the signal that a pool's ranks are told of in another way (on_preempt)? */
bool zygote_pool_spares(int signo);
/* A child has ended. False: it was no zygote. */
bool zygote_pool_reaped(pid_t pid, int status);

/* zygote.c */
/* Starts ddip-engine ROLE with pool's Python in a session of its own, in pool's directory, with
 * these descriptors as 1 and 2 and env (K=V NUL-ended) over ours. The child dies with us. Returns
 * its pid, or -errno. */
pid_t zygote_exec(const struct zygote_pool *pool, const char *role, int out, int err,
    const struct buf *env, struct err *e);
/* A zygote without a process yet: our end of its socket is read by msg and closed, the other end is
 * the caller's. NULL: e says why. */
struct zygote *zygote_new(
    struct zygote_pool *pool, conn_msg_fn *msg, conn_close_fn *closed, int *theirs, struct err *e);
void zygote_free(struct zygote *z); /* with its process */
/* Remembers when the directories that its modules came from were changed last (paths, each ended by
 * NUL), and tells whether one was changed since. */
void zygote_remember_ages(struct zygote *z, struct slice paths);
bool zygote_is_stale(const struct zygote *z);
/* The zygote that a Tfork with this tag was to make, NULL: none. */
struct zygote *zygote_of_tag(uint32_t tag);
/* A spare became an engine: from here on its pid is spawn.c's. */
void zygote_handed_over(struct zygote *z);

/* spawn.c */
void spawn_ask(struct msg *m); /* Tspawn */
/* pool has a zygote now, or can't have one (e). */
void spawn_ready(struct zygote_pool *pool);
void spawn_failed(struct zygote_pool *pool, const struct err *e);
/* Rfork and Rerror of a zygote, and its end. */
void spawn_forked(struct zygote *z, struct msg *m);
void spawn_refused(struct zygote *z, struct msg *m);
void spawn_orphaned(struct zygote *z);
void spawn_forget(struct zygote_pool *pool); /* pool is about to be freed */
/* A message of the daemon for an engine: a marked one is announced by Nmark. */
void spawn_pass(struct engine *e, struct msg *m);
void spawn_signal(struct msg *m); /* Nsignal */
struct engine *spawn_find(unsigned slot);
void spawn_free(struct engine *e);

/* gpus.c */
void gpus_ask(struct msg *m); /* Tgpus */
/* The process that asks NVML, and writes what it says to 1. Returns the exit status. */
int gpus_main(void);

/* env.c: NUL-ended K=V texts, one behind the other. */
const char *env_get(const struct buf *env, const char *key); /* NULL: not there */
void env_add(struct buf *env, const char *fmt, ...) PRINTF(2, 3);
/* The program's own environment, overlaid by env: NULL-ended; the array is the caller's, the texts
 * are not. */
char **env_overlay(const struct buf *env);
/* What a zygote must not hand to its ranks: their thread counts as pool's user set them, or as
 * torchrun would. A key without '=' takes the variable away. */
void env_add_threads(struct buf *to, const struct zygote_pool *pool, bool for_zygote);

/* drain.c */
int drain_open(struct engine *e, struct err *err);
void drain_close(struct engine *e);
/* All that was printed until now is in the spool. */
void drain_all(struct engine *e);

/* reap.c */
void reap_start(void);
/* Is pid dead already? Then *status. */
bool reap_unclaimed(pid_t pid, int *status);
void reap_ended(struct engine *e, int status);
/* The engine closed its socket: it is dead, or dies now. */
void reap_closed(struct engine *e);
/* SIGKILL to all processes of the session of leader. */
void reap_session(pid_t leader);
/* Kills all that descends from this process, waits for it, and exits. */
_Noreturn void reap_all(int status);

#endif
