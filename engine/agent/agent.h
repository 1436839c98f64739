/*
 * The agent of a host: what its modules share. The agent runs no Python: zygotes and ranks are its
 * child processes.
 *
 *   agent.c  the control connection: one row per message
 *   zygote_pool.c  which zygotes, successors and spares exist
 *   zygote.c  one zygote: its process, its age
 *   spawn.c  a new engine: descriptors, fork by a zygote, or exec
 *   env.c  the environments of zygotes and ranks
 *   drain.c  moves the output of engines from ring and pipes to spools
 *   away.c  output for a daemon on another host
 *   objects.c  objects for it (objects.h): reads.c
 *   combine.c  OPs over the ranks of this host, for it
 *   gpus.c  what NVML reports on this host
 *   reap.c  processes that have exited, and the end of the agent
 *   left.c  what ranks leave behind
 */
#ifndef ENGINE_AGENT_H
#define ENGINE_AGENT_H
#include "bulk.h"
#include "conn.h"
#include "spool.h"
#include "output_ring.h"
#include <sys/queue.h>
#include <sys/types.h>

struct zygote_pool;
struct away;

/* One process that forks ranks. */
struct zygote {
	struct zygote_pool *pool;
	struct conn *conn;
	pid_t pid;
	uint64_t tag; /* of the Tfork that created it; 0: started by exec */
	bool ready, successor, spare;
	bool taken;	       /* a spare that is becoming an engine */
	bool retired;	       /* asked to quit, its end is awaited; or became an engine */
	char *paths;	       /* a change makes it stale; NUL-terminated, the last is empty */
	struct timespec *ages; /* their mtimes when it became ready */
	size_t n_paths;
	TAILQ_ENTRY(zygote) link;
};

/* What the daemon requested with Tzygote: interpreter, environment, directory, modules. */
struct zygote_pool {
	uint32_t id;
	char *python, *cwd, *preload;
	dev_t cwd_dev; /* of the directory in which its zygotes are */
	ino_t cwd_ino;
	struct buf env;		   /* K=V, each NUL-terminated */
	struct zygote *now, *next; /* now is in use; next, its successor, will take over */
	uint64_t tag;		   /* of the Tzygote not yet answered; 0: none */
	int err_in, err_out;	   /* the pipe for its zygotes' stdout and stderr */
	struct watch *err_watch;
	struct buf tail; /* the last bytes of their output */
	struct timer *idle;
	struct buf phases;
	bool successor_requested; /* a successor was requested since `now` was started */
	unsigned spares;	  /* number to keep ready for the next start */
	TAILQ_ENTRY(zygote_pool) link;
};

enum engine_state { ENGINE_WAITS, ENGINE_FORKS, ENGINE_RUNS, ENGINE_ENDED };

/* An engine's output on its way to the spools (drain.c). */
struct engine_output {
	struct spool_writer spool;
	bool spooled;
	struct away *away;  /* NULL: the daemon itself reads the spools */
	uint64_t err_start; /* size of stderr before this engine */

	struct outlet {
		struct engine *e;
		int fd; /* read end, -1: closed */
		struct watch *watch;
	} outlet[SPOOL_STREAMS];

	int wakeup_fd;
	struct watch *wakeup_watch;
	struct output_ring *ring;
	uint64_t head; /* our copy of the ring's field, which the rank could overwrite */
	uint32_t switch_head, kind_now;
	struct timer *look;    /* the next look at the ring */
	struct timer *linger;  /* it has exited: waits for its last frames */
	uint64_t told_dropped; /* reported by Ndropped */
};

/* A rank or a store. */
struct engine {
	uint32_t slot;
	uint8_t kind;
	enum engine_state state;
	pid_t pid;	  /* 0: not yet known */
	uint64_t lineage; /* of all that descends from it; 0: not known */
	uint64_t tag;
	bool cold;
	struct zygote_pool *pool;
	struct zygote *zygote; /* that is forking it; NULL once it has replied */
	char *name, *dir;
	struct buf env;
	struct conn *conn;	    /* NULL: closed by the engine */
	int given[ENGINE_FDS], ctl; /* the engine's ends, until it has them; -1: closed */
	struct engine_output output;
	int signal;	 /* to send as soon as the process exists; 0: none */
	int status;	 /* from wait(2), once it has exited */
	uint64_t killed; /* memory_killed() when it began */
	TAILQ_ENTRY(engine) link;
};

struct agent {
	struct loop *loop;
	struct conn *up; /* the daemon */
	bool greeted;
	bool away;		  /* the daemon is on another host */
	struct conn *objects;	  /* if so: what comes by LANE_OBJECTS */
	struct bulk *bulk[LANES]; /* and what goes by the others than LANE_CONTROL */
	char *base;		  /* the directory that those of groups are in */
	uint64_t lineage;	  /* of all that the agent runs; 0: there is none */
	int user_umask;		  /* of the mounting user, for zygotes and ranks; -1: the agent's */
	long long user_files;	  /* open file limit, likewise */
	TAILQ_HEAD(engines, engine) engines;
	TAILQ_HEAD(pools, zygote_pool) pools;
	TAILQ_HEAD(zygotes, zygote) zygotes;

	/* Exits of processes not yet known: the reply to their fork may come later. */
	struct {
		pid_t pid;
		int status;
	} unclaimed[64];

	unsigned n_unclaimed;
};

extern struct agent agent; /* there is one per process */

/* Serves the daemon on descriptors 0 and 1 until they are closed. away: NULL, or it is on another
 * host, and this is the directory for what ranks print, until that is sent. Returns the exit
 * status. */
int agent_main(const char *away);
/* Sends Rerror to the daemon. */
void agent_refuse(unsigned slot, uint64_t tag, const struct err *e);
struct slice agent_text(const char *s);

/* zygote_pool.c */
void zygote_pool_ask(struct msg *m);	 /* Tzygote */
void zygote_pool_release(struct msg *m); /* Nrelease */
struct zygote_pool *zygote_pool_find(uint32_t id);
/* Returns a zygote that is ready to fork (or a spare). NULL: one is being started, and spawn_ready
 * or spawn_failed follows; spawn_failed possibly before this returns. */
struct zygote *zygote_pool_take(struct zygote_pool *pool);
/* Reports activity of a start: the successor and spares are forked in a quiet period. */
void zygote_pool_busy(struct zygote_pool *pool);
/* Is this some pool's on_preempt signal, which its ranks learn of in another way? */
bool zygote_pool_spares(int signo);
/* A child has exited. Returns false if it was not a zygote. */
bool zygote_pool_reaped(pid_t pid, int status);

/* zygote.c */
/* Starts ddip-engine --ROLE with pool's Python in its own session, in pool's directory, with these
 * descriptors as 1 and 2 and env (K=V, NUL-terminated) overlaid on our environment. The child dies
 * with us. Returns its pid, or -errno with *e set. */
pid_t zygote_exec(const struct zygote_pool *pool, const char *role, int out, int err,
    const struct buf *env, struct err *e);
/* Creates a zygote without a process. msg and closed serve our end of its socket; the caller owns
 * the other end, *theirs. Returns NULL with *e set on failure. */
struct zygote *zygote_new(
    struct zygote_pool *pool, conn_msg_fn *msg, conn_close_fn *closed, int *theirs, struct err *e);
void zygote_free(struct zygote *z); /* kills its process too */
/* Records the mtimes of the directories that its modules came from (paths, each NUL-terminated).
 * zygote_is_stale: has any of them changed since, or is its directory another one by now? */
void zygote_remember_ages(struct zygote *z, struct slice paths);
bool zygote_is_stale(const struct zygote *z);
/* The zygote that a Tfork with this tag was to create; NULL if there is none. */
struct zygote *zygote_of_tag(uint64_t tag);
/* A spare became an engine: from now on spawn.c owns its pid. */
void zygote_handed_over(struct zygote *z);

/* spawn.c */
void spawn_ask(struct msg *m); /* Tspawn */
/* pool now has a zygote, or cannot have one (e). */
void spawn_ready(struct zygote_pool *pool);
void spawn_failed(struct zygote_pool *pool, const struct err *e);
/* A zygote sent Rfork, or Rerror, or has ended. */
void spawn_forked(struct zygote *z, struct msg *m);
void spawn_refused(struct zygote *z, struct msg *m);
void spawn_orphaned(struct zygote *z);
void spawn_forget(struct zygote_pool *pool); /* pool is about to be freed */
/* Forwards a message from the daemon to an engine; a marked one is first announced by Nmark. */
void spawn_pass(struct engine *e, struct msg *m);
void spawn_signal(struct msg *m); /* Nsignal */
void spawn_wrong(struct msg *m);  /* Nwrong */
struct engine *spawn_find(unsigned slot);
void spawn_free(struct engine *e);

/* gpus.c */
void gpus_ask(struct msg *m); /* Tgpus */
/* The process that asks NVML, with the agent on descriptor 0. Returns the exit status. */
int gpus_main(void);

/* objects.c: what a daemon on another host wants of ranks' objects. objects_asked and
 * objects_answered return true if the message is done with, and must not be forwarded. */
bool objects_asked(struct engine *e, const struct msg *m);
bool objects_answered(struct engine *e, struct msg *m);
void objects_ended(struct engine *e); /* the engine has exited */

/* reads.c. Adds what is sent next, whole frames, to frame. Returns false if there is nothing. */
bool reads_next(void *arg, struct buf *frame);

/* combine.c */
void combine_ask(struct msg *m); /* Treduce */
/* A message came from an engine. Returns true if it was for a Treduce. */
bool combine_answered(struct engine *e, struct msg *m);
/* The answer to the Treduce with this tag is no longer wanted: it becomes an error. Returns false
 * if there is none. */
bool combine_cancel(unsigned slot, uint64_t tag);
void combine_ended(const struct engine *e);

/* env.c: NUL-terminated K=V strings, one after the other. */
const char *env_get(const struct buf *env, const char *key); /* NULL: not set */
void env_add(struct buf *env, const char *fmt, ...) PRINTF(2, 3);
/* The program's own environment, overlaid with env, as a NULL-terminated array. The caller frees
 * the array; the strings are borrowed. */
char **env_overlay(const struct buf *env);
/* Adds the thread counts that pool's user set, else torchrun's. For a zygote all are 1, which its
 * ranks must not inherit. A key without '=' removes the variable. */
void env_add_threads(struct buf *to, const struct zygote_pool *pool, bool for_zygote);

/* drain.c */
int drain_open(struct engine *e, struct err *err);
void drain_close(struct engine *e);
/* Moves everything printed so far to the spool, and returns the position behind it. */
struct spool_mark drain_mark(struct engine *e);
/* Both send a message of the engine to the daemon, which gets what was printed before `at` first
 * (NULL: what came before the last such message). drain_say packs a notice; the arguments are as
 * for wire_pack(). */
void drain_pass(struct engine *e, const struct msg *m, const struct spool_mark *at);
void drain_say(struct engine *e, const struct spool_mark *at, int type, ...);

/* away.c. Begins with new spools, in a directory that is made if necessary. NULL: *err is set. */
struct away *away_open(const struct engine *e, struct err *err);
/* There is more in the spools. NULL-safe. */
void away_news(struct away *a);
/* Sends m, without a descriptor, behind what was printed before `at` (NULL: that does not matter),
 * and behind earlier messages. */
void away_say(struct away *a, const struct msg *m, const struct spool_mark *at);
/* The rank has exited, and its Nexit was the last message: a ends once all is sent. NULL-safe. */
void away_end(struct away *a);
/* The rank at this slot is asked to quit: what is not sent within a second of its exit is
 * skipped. */
void away_quit(unsigned slot);
/* Ends a, with the files. NULL-safe. */
void away_drop(struct away *a);
/* Adds what is sent next, whole frames, to frame. Returns false if there is nothing. */
bool away_next(void *arg, struct buf *frame);

/* reap.c */
void reap_start(void);
/* Has pid already exited? If so, sets *status. */
bool reap_unclaimed(pid_t pid, int *status);
void reap_ended(struct engine *e, int status);
/* The engine closed its socket: it has exited, or is killed now. */
void reap_closed(struct engine *e);
typedef void process_fn(pid_t pid, void *arg);
/* Calls fn for all processes of this machine. */
void reap_each(process_fn *fn, void *arg);
/* Kills all descendants of this process, waits for them, and exits. */
_Noreturn void reap_all(int status);

/* left.c */
/* Before an engine runs a program: what descends from it can be told from now on. */
void left_mark(struct engine *e);
/* Sends SIGKILL to an engine and to all that descends from it, in whatever session. Reports later
 * to the daemon what has not ended. */
void left_end(const struct engine *e);

#endif
