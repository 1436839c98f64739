/* Agents: starts one for a host, calls it, and finds the engine that a message is about. */
#ifndef AGENT_H
#define AGENT_H
#include "conn.h"
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

/* How to start an agent for a host: the local one is a row, others will be. */
struct launcher {
	const char *name;
	int (*start)(struct agent *a, struct err *e);
};

struct agent {
	const struct launcher *launcher;
	struct conn *conn; /* NULL: gone */
	pid_t pid;	   /* of the local process that leads to it */
	pid_t host_pid;	   /* the agent itself, on its host */
	char *host;
	struct err why; /* it is gone because */
	bool said_hello;
	uint32_t serial; /* another one with each process */
	struct call *calls;
	size_t call_room;

	struct slot {
		const struct slot_ops *ops; /* NULL: free */
		void *arg;
	} * slots;

	size_t slot_room;
	int next_slot;
	struct zygote *zygotes;		       /* asked for (zygotes.c) */
	void (*zygotes_gone)(struct agent *a); /* all of them, with the agent */
	uint32_t last_zygote;		       /* number given */
};

extern const struct launcher launchers[];
extern const size_t launcher_count;

/* The host's agent, started if need be. NULL with e. */
struct agent *agent_local(struct err *e);
void agent_stop_all(void); /* EOF to all: engines die with their agents; waits for them */
/* Tells who is gone when SIGCHLD says so; false: not an agent. */
bool agent_reaped(pid_t pid, int status);

/* A tag for a T: fn is called once. */
uint32_t agent_tag(struct agent *a, int slot, reply_fn *fn, void *arg);
/* Nobody wants the answer any more: who asked is gone. */
void agent_forget(struct agent *a, uint32_t tag);
#define agent_send(a, type, flags, slot, tag, fd, ...)                                             \
	conn_send((a)->conn, type, flags, (unsigned)(slot), tag, fd, ##__VA_ARGS__)

enum { NO_SLOT = -1 };

/* A slot for a new engine: ops hear of it, with arg. NO_SLOT: all are taken. */
int agent_slot(struct agent *a, const struct slot_ops *ops, void *arg);
/* Is an engine there that can be sent to? The agent may be gone, or NULL. */
bool agent_slot_lives(const struct agent *a, int slot);
/* The engine is gone: its open calls fail with why. */
void agent_slot_free(struct agent *a, int slot, const struct err *why);

#endif
