/*
 * An agent without Python, for tests of the daemon: it speaks the agent's side of the protocol,
 * each rank is a child process that does nothing but live and die, and a cell is a few lines of
 * simple commands (words.c).
 *
 *   fake-engine.c  the connection, messages to the agent
 *   engines.c      the engines: the order of their messages, their variables
 *   requests.c     messages to an engine
 *   words.c        what a rank does with a cell
 *   child.c        the processes of the ranks
 *
 * DDIP_FAKE lists what is to go wrong, in words separated by blanks; DDIP_FAKE_SEED=N delays the
 * engines' messages by random times from this seed, keeping the order of each engine's messages.
 */
#ifndef FAKE_H
#define FAKE_H
#include "../../include/conn.h"
#include "../../include/loop.h"
#include "../../include/spool.h"
#include <sys/queue.h>
#include <sys/types.h>

/* What a command of a cell waits for. */
enum wait_kind {
	WAIT_NONE,
	WAIT_TIME,
	WAIT_ABORT,
	WAIT_KILL,
	WAIT_REDUCE,
	WAIT_INPUT,
	WAIT_CHILD,
	WAIT_INTERRUPT, /* Nintr, which it handles */
	WAIT_HANDLER,	/* the end of its own handler of Nintr */
	WAIT_OWN	/* time to pass; Nintr goes to a handler that does nothing */
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
	int orders, answers; /* pipes to and from it */
	struct watch *watch;
	bool dead; /* it was reaped */
};

/* The cell that runs on a rank. */
struct run {
	bool running;
	uint32_t cell;
	uint64_t tag;
	char *source, *at; /* the rest of the source */
	char *value;
	uint32_t collectives; /* completed in it */
	enum wait_kind waits;
	double handler_s; /* how long it handles an interrupt */
	struct timer *timer;
};

/* A value that was decoded and waits for Tcommit. */
struct staged {
	char *name, *value;
	char *moved; /* the old name, removed by Tcommit; NULL: it is a push */
};

/* What it refuses: the next `left` messages of this type, each with the next number. */
struct refusal {
	int type;
	uint32_t number;
	unsigned long left;
};

struct engine {
	unsigned slot;
	int kind;
	bool gone; /* Nexit has been queued */
	struct child child;
	char *dir, *name;
	struct spool_writer spool;
	bool spooled;
	uint32_t rank, size, generation;
	TAILQ_HEAD(, variable) variables;
	struct staged put;
	struct run run;
	struct refusal refuses;
	/* messages that are not sent yet */
	TAILQ_HEAD(, frame) said;
	struct timer *mouth;
	TAILQ_ENTRY(engine) link;
};

TAILQ_HEAD(engine_list, engine);
extern struct engine_list engines;
extern struct loop *loop;

/* Is this to go wrong? If DDIP_FAKE_ONCE is set, only as long as the file that it names exists. */
bool fake_wrong(const char *word);

/* engines.c. delays: the seed for random delays, 0: none. */
void engine_init(struct conn *daemon, unsigned delays);
struct engine *engine_find(unsigned slot); /* NULL: no live engine has this slot */
void engine_free(struct engine *e);
/* Queues a message of an engine behind its earlier ones. Arguments as for wire_pack. */
void engine_say(struct engine *e, int type, int flags, uint64_t tag, ...);
void engine_refuse(struct engine *e, uint64_t tag, int no, const char *text);
/* Reports the end of a cell, with the marks of its output. */
void engine_ran(struct engine *e, int outcome, const char *error, const char *traceback);
/* Its variables in the form that Rrun and others use; the caller frees the string. */
char *engine_table(const struct engine *e);
void engine_set(struct engine *e, const char *name, const char *value);
bool engine_unset(struct engine *e, const char *name);
struct variable *engine_variable(const struct engine *e, const char *name);
/* Nexit has been queued: frees the engine when all its messages are sent. */
void engine_gone(struct engine *e);
/* Sends a malformed frame, on which the daemon closes the connection. */
void engine_nonsense(void);

/* requests.c */
bool request_is(int type); /* is it a message to an engine? */
/* The type of message to an engine that has this name; 0: none. */
int request_type(const char *name);
void request_answer(struct engine *e, struct msg *m);

/* child.c */
void child_fork(struct engine *e);
void child_ended(void *arg, int signo); /* SIGCHLD */
/* Sends a line to the child: "exit N" or "use PATH TEXT". */
void child_order(struct engine *e, const char *line);

/* words.c */
void words_begin(struct engine *e, uint64_t tag, uint32_t cell, struct slice source);
void words_interrupt(struct engine *e, uint32_t cell); /* Nintr */
void words_abort(struct engine *e);		       /* Nabort */
void words_input(struct engine *e, struct slice data); /* Nstdin */
void words_answer(struct engine *e, const char *line); /* from the child */
void words_end(struct engine *e);		       /* the child died */

#endif
