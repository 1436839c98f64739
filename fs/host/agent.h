/*
 * Agents, one per host: starts them, calls them, and routes their messages to the engines
 * concerned. An agent on another host is reached through a line: a process here, the relay, has one
 * end of it.
 */
#ifndef AGENT_H
#define AGENT_H
#include "conn.h"
#include "host/agent_process.h"
#include <sys/types.h>

/* The reply to a call: m, or NULL with the error in e and its traceback, possibly empty, in
 * trace. */
typedef void reply_fn(void *arg, struct msg *m, const struct err *e, struct slice trace);

struct agent;

/* Callbacks for an engine: messages that answer no call, and the end of its agent. */
struct slot_ops {
	void (*notice)(void *arg, struct msg *m);
	/* The agent is gone: send nothing there any more. Called for all slots before any `ended`.
	 * May be NULL. */
	void (*lost)(void *arg, const struct err *why);
	/* Then handles the consequences, which may include starting another agent. */
	void (*ended)(void *arg, const struct err *why);
};

/* What it has said of the output of its ranks. */
enum agent_hello {
	HELLO_NONE, /* nothing yet */
	HELLO_HERE, /* it writes that to the spools */
	HELLO_AWAY  /* that comes in messages */
};

/* Of an agent on another host. */
struct agent_line {
	struct conn *lanes[LANES]; /* next to that of control */
	struct outbox *outbox;
	int words;		   /* descriptor of the relay's words */
	struct watch *words_watch; /* NULL: it has no relay */
	bool direct;		   /* it bypasses the launcher */
};

struct agent {
	struct agent *next;
	struct agent_spec spec; /* owned */
	bool here;		/* its processes run on this machine */
	int users;		/* holders: agent_hold() */
	struct conn *conn;	/* NULL: no connection */
	struct agent_line line; /* to another host */
	struct agent_process process;
	char *host;	/* the machine's own name for itself; NULL: not yet known */
	struct err why; /* why it is gone */
	enum agent_hello hello;
	uint64_t asked, round_trip; /* ns: time of the pending ping (0: none), last round trip */
	uint32_t serial;	    /* new for each process */
	struct calls *calls;

	struct slot {
		const struct slot_ops *ops; /* NULL: free */
		void *arg;
		uint32_t serial; /* of the agent process that the engine belongs to */
		bool unwanted;	 /* its group no longer waits for it to end (hosts.c) */
		int use;	 /* engines that had this place before */
		int next_free;	 /* 1 + the next free place; 0: none */
	} * slots;		 /* by place */

	int slot_room, free_place;	       /* free_place: 1 + the first; 0: none */
	struct zygote *zygotes;		       /* requested (zygotes.c) */
	void (*zygotes_gone)(struct agent *a); /* frees the list when the agent is gone */
	uint32_t last_zygote;		       /* last number assigned */
};

/* Called for notices that concern the agent itself. Set by a higher layer. */
extern void (*agent_notice)(struct agent *a, struct msg *m);
/* The line to it goes over a direct connection, or only over its launcher, and why. Likewise. */
extern void (*agent_way)(struct agent *a, bool direct, const char *why);

/* Returns the agent for spec, starting its process if necessary. It lives until agent_free_all.
 * NULL with e. */
struct agent *agent_of(const struct agent_spec *spec, struct err *e);
extern const struct agent_spec agent_spec_here;
/* The agent of this machine, for groups that name no hosts; NULL if it was never started. */
struct agent *agent_here(void);
/* Hold an agent while processes are placed on it. The last release ends an agent that has a name;
 * this machine's own agent stays. agent_release is NULL-safe. */
void agent_hold(struct agent *a);
void agent_release(struct agent *a);
/* Closes its connection: everything it runs ends and is reported as lost. */
void agent_drop(struct agent *a, const struct err *why);
/* Sends a ping to measure the round trip. Does nothing if one is pending or the agent is gone. */
void agent_ping(struct agent *a);
/* Its name in `hosts`, or the machine's own name for itself; "-": not yet known. */
const char *agent_host(const struct agent *a);
void agent_stop_all(void); /* sends EOF to all: engines die with their agents; waits for them */
void agent_free_all(void); /* once nothing refers to them */
/* Call for each child that has exited (SIGCHLD). False: it was not an agent. */
bool agent_reaped(pid_t pid, int status);

/* Allocates the tag for a T of this type: fn is called once. A reply of another type than
 * wire_reply(type), and a damaged one, is EBADMSG to fn, and the engine at the slot is killed
 * (NO_SLOT: the agent is dropped). */
uint64_t agent_tag(struct agent *a, int slot, int type, reply_fn *fn, void *arg);
/* The reply is no longer wanted: the caller is gone. */
void agent_forget(struct agent *a, uint64_t tag);
/* Sends Ncancel: the reply to the T with this tag is no longer wanted, and comes soon. */
void agent_cancel(struct agent *a, int slot, uint64_t tag);
#define agent_send(a, type, flags, slot, tag, fd, ...)                                             \
	conn_send((a)->conn, type, flags, (unsigned)(slot), tag, fd, ##__VA_ARGS__)

/* The same for several engines: who lists their slots and tags, built with wire_many_add(). */
#define agent_send_many(a, who, type, flags, ...)                                                  \
	conn_send_many((a)->conn, who, type, flags, ##__VA_ARGS__)

enum { NO_SLOT = SLOT_AGENT };

/* Allocates a slot, for this engine alone: its events go to ops, with arg. Each agent numbers its
 * own slots. NO_SLOT: all places are in use. */
int agent_slot(struct agent *a, const struct slot_ops *ops, void *arg);
/* Is there an engine at this slot to send to? The agent may be gone, or NULL. */
bool agent_slot_lives(const struct agent *a, int slot);
/* Frees the slot of an engine that is gone: its pending calls fail with why. */
void agent_slot_free(struct agent *a, int slot, const struct err *why);

#endif
