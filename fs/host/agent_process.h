/*
 * The process that the daemon starts for an agent: the agent itself on this machine, or the relay
 * that leads to it on another.
 */
#ifndef AGENT_PROCESS_H
#define AGENT_PROCESS_H
#include "wire.h"
#include <sys/types.h>

/* Which agent, and how to reach it. */
struct agent_spec {
	const char *host;     /* its name in `hosts`; "": this machine */
	const char *launcher; /* the words of `launcher` (launcher.h); only if it has a name */
	const char *engine;   /* path of ddip-engine on that host; "": copy ours there */
	double linger;	      /* seconds that it outlives its connection */
};

struct agent_process {
	pid_t pid;	  /* of the agent, or of the relay to it; 0: it has ended */
	uint64_t lineage; /* of all that an agent here starts, for lineage_end(); 0: not known */
};

/* Our ends of its sockets; -1: there is none. */
struct agent_sockets {
	int lanes[LANES]; /* to an agent here, only that of control */
	int words;	  /* of a relay, one record for each word: see line.h */
};

/* Do its processes run on this machine? */
bool agent_process_is_here(const struct agent_spec *s);
/* Starts it. Returns -errno with *e set on failure; else the caller owns the sockets. */
int agent_process_start(
    const struct agent_spec *s, struct agent_process *p, struct agent_sockets *ours, struct err *e);
void agent_sockets_close(struct agent_sockets *s);

#endif
