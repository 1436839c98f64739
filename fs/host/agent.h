/*
 * Agents, one for each host: starts them, calls them, and finds the engine that a message is about.
 * One on another host is reached through a relay, a process of ours that carries the connection.
 */
#ifndef AGENT_H
#define AGENT_H
#include "conn.h"
#include "host/agent_process.h"
#include <sys/types.h>

/* The answer to a call: m, or NULL and what went wrong (e->text; traceback in *trace, may be
 * empty). */
typedef void reply_fn(void *arg, struct msg *m, const struct err *e, struct slice trace);

struct agent;

/* Who hears of an engine: messages that no call waits for, and the end of its agent. */
struct slot_ops {
	void (*notice)(void *arg, struct msg *m);
	/* The agent is gone: nothing may be sent there any more. Called for all slots first. NULL:
	 * none. */
	void (*lost)(void *arg, const struct err *why);
	/* Then: what follows from that, perhaps another agent. */
	void (*ended)(void *arg, const struct err *why);
};

struct agent {
	struct agent *next;
	struct agent_spec spec; /* owned */
	bool here;		/* its processes are of this machine */
	int users;		/* that hold it */
	struct conn *conn;	/* NULL: gone */
	pid_t pid;		/* of the local process that is it, or leads to it */
	char *host;		/* what that machine calls itself; NULL: not known yet */
	struct err why;		/* it is gone because */
	bool said_hello;
	bool direct; /* host_notice.c: reached by a connection beside its launcher */
	uint64_t asked,
	    round_trip;	 /* ns: when it was pinged (0: it has answered), how long it took */
	uint32_t serial; /* another one with each process */
	struct calls *calls;

	struct slot {
		const struct slot_ops *ops; /* NULL: free */
		void *arg;
		uint32_t serial; /* of the agent's process that the engine belongs to */
		bool unwanted;	 /* its group does not wait for its end any more (host_end.c) */
	} * slots;

	int slot_room;
	int next_slot;			       /* where a free one is looked for first */
	struct zygote *zygotes;		       /* asked for (zygotes.c) */
	void (*zygotes_gone)(struct agent *a); /* all of them, with the agent */
	uint32_t last_zygote;		       /* number given */
};

/* Hears what an agent says of itself; of the layers above. */
extern void (*agent_notice)(struct agent *a, struct msg *m);

/* This agent, started if need be; it lives until agent_free_all. NULL with e. */
struct agent *agent_of(const struct agent_spec *spec, struct err *e);
/* Somebody places processes there. The last one who does no more ends it, if it has a name: that of
 * this machine stays. NULL-safe. */
void agent_hold(struct agent *a);
void agent_release(struct agent *a);
/* Its connection is given up: all that it runs ends, and is told as lost. */
void agent_drop(struct agent *a, const struct err *why);
/* Asks for an answer, to know the round trip; nothing while one is awaited. */
void agent_ping(struct agent *a);
/* Its name in `hosts`, or what the machine calls itself; "-": not known yet. */
const char *agent_host(const struct agent *a);
void agent_stop_all(void); /* EOF to all: engines die with their agents; waits for them */
void agent_free_all(void); /* when nothing points at them any more */
/* Tells who is gone when SIGCHLD says so; false: not an agent. */
bool agent_reaped(pid_t pid, int status);

/* A tag for a T: fn is called once. */
uint32_t agent_tag(struct agent *a, int slot, reply_fn *fn, void *arg);
/* Nobody wants the answer any more: who asked is gone. */
void agent_forget(struct agent *a, uint32_t tag);
#define agent_send(a, type, flags, slot, tag, fd, ...)                                             \
	conn_send((a)->conn, type, flags, (unsigned)(slot), tag, fd, ##__VA_ARGS__)

/* The same for many engines: who has their slots and tags, by wire_many_add(). */
#define agent_send_many(a, who, type, flags, ...)                                                  \
	conn_send_many((a)->conn, who, type, flags, ##__VA_ARGS__)

enum { NO_SLOT = -1 };

/* A slot for a new engine: ops hear of it, with arg. Agents number theirs by themselves. NO_SLOT:
 * all are taken. */
int agent_slot(struct agent *a, const struct slot_ops *ops, void *arg);
/* Is an engine there that can be sent to? The agent may be gone, or NULL. */
bool agent_slot_lives(const struct agent *a, int slot);
/* The engine is gone: its open calls fail with why. */
void agent_slot_free(struct agent *a, int slot, const struct err *why);

#endif
