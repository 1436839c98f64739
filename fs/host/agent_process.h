/*
 * The process that the daemon starts for an agent: the agent itself on this machine, or the relay
 * that leads to it on another.
 */
#ifndef AGENT_PROCESS_H
#define AGENT_PROCESS_H
#include "err.h"
#include <stdint.h>
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

/* Do its processes run on this machine? */
bool agent_process_is_here(const struct agent_spec *s);
/* Starts it. Returns our end of its socket, or -errno. */
int agent_process_start(const struct agent_spec *s, struct agent_process *p, struct err *e);

#endif
