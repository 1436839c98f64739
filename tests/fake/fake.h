/*
 * An agent without Python, for tests of the daemon: it speaks the agent's side of the wire, each
 * rank is a child process that does nothing but live and die, and a cell is a few lines of words
 * (words.c).
 *
 *   fake-engine.c  the connection, messages for the agent
 *   engines.c      the engines: the order of what they say, their variables
 *   requests.c     messages for an engine
 *   words.c        what a rank does with a cell
 *   child.c        the processes that ranks are
 *
 * DDIP_FAKE names what is to go wrong, words separated by blanks; DDIP_FAKE_SEED=N delays what
 * engines say by random times from this seed, each engine's messages in order.
 */
#ifndef FAKE_H
#define FAKE_H
#include "../../include/conn.h"
#include "../../include/loop.h"
#include "../../include/spool.h"
#include <sys/queue.h>
#include <sys/types.h>

/* How a word of a cell waits for something. */
enum wait_kind {
	WAIT_NONE,
	WAIT_TIME,
	WAIT_ABORT,
	WAIT_KILL,
	WAIT_REDUCE,
	WAIT_INPUT,
	WAIT_CHILD,
	WAIT_INTERRUPT, /* for Nintr, which it handles */
	WAIT_HANDLER,	/* in its own handler of Nintr */
	WAIT_OWN	/* time goes by, Nintr goes to a handler that does nothing */
};

struct variable {
	char *name, *value;
	TAILQ_ENTRY(variable) link;
};

struct frame {
	struct buf bytes;
	TAILQ_ENTRY(frame) link;
};

/* The process of an engine. */
struct child {
	pid_t pid;
	int orders, answers; /* pipes to it and back */
	struct watch *watch;
	bool dead; /* it was reaped */
};

/* The cell that runs on a rank. */
struct run {
	bool running;
	uint32_t cell, tag;
	char *source, *at; /* the rest of it */
	char *value;
	uint32_t collectives; /* done in it */
	enum wait_kind waits;
	double handler_s; /* how long it handles an interrupt */
	struct timer *timer;
};

/* What was decoded and waits for Tcommit. */
struct staged {
	char *name, *value;
	char *moved; /* the name that goes then; NULL: it was a push */
};

struct engine {
	unsigned slot;
	int kind;
	bool gone; /* Nexit is said */
	struct child child;
	char *dir, *name;
	struct spool_writer spool;
	bool spooled;
	uint32_t rank, size, generation;
	TAILQ_HEAD(, variable) variables;
	struct staged put;
	struct run run;
	/* what it said and is not out yet */
	TAILQ_HEAD(, frame) said;
	struct timer *mouth;
	TAILQ_ENTRY(engine) link;
};

TAILQ_HEAD(engine_list, engine);
extern struct engine_list engines;
extern struct loop *loop;

/* Is this to go wrong? DDIP_FAKE_ONCE names a file that is there as long as it is. */
bool fake_wrong(const char *word);

/* engines.c. delays: the seed of random ones, 0: none. */
void engine_init(struct conn *daemon, unsigned delays);
struct engine *engine_find(unsigned slot); /* NULL: there is none that lives */
void engine_free(struct engine *e);
/* A message of an engine, in order behind those before it. Arguments as wire_pack. */
void engine_say(struct engine *e, int type, int flags, uint32_t tag, ...);
void engine_refuse(struct engine *e, uint32_t tag, int no, const char *text);
/* The end of a cell: marks are made here. */
void engine_ran(struct engine *e, int outcome, const char *error, const char *traceback);
/* Its variables as Rrun and others tell them; the caller's. */
char *engine_table(const struct engine *e);
void engine_set(struct engine *e, const char *name, const char *value);
bool engine_unset(struct engine *e, const char *name);
struct variable *engine_variable(const struct engine *e, const char *name);
/* Its Nexit is said: it is freed when all that it said is out. */
void engine_gone(struct engine *e);
/* A frame that is none: the daemon hangs up on who says such things. */
void engine_nonsense(void);

/* requests.c */
bool request_is(int type); /* for an engine? */
void request_answer(struct engine *e, struct msg *m);

/* child.c */
void child_fork(struct engine *e);
void child_ended(void *arg, int signo); /* SIGCHLD */
/* A line for the child: "exit N" or "use PATH TEXT". */
void child_order(struct engine *e, const char *line);

/* words.c */
void words_begin(struct engine *e, uint32_t tag, uint32_t cell, struct slice source);
void words_interrupt(struct engine *e, uint32_t cell); /* Nintr */
void words_abort(struct engine *e);		       /* Nabort */
void words_input(struct engine *e, struct slice data); /* Nstdin */
void words_answer(struct engine *e, const char *line); /* of the child */
void words_end(struct engine *e);		       /* it died */

#endif
