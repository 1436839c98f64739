/*
 * The process of an agent, as the daemon starts it: the agent itself on this machine, or the relay
 * that leads to it on another.
 */
#ifndef AGENT_PROCESS_H
#define AGENT_PROCESS_H
#include "err.h"
#include <sys/types.h>

/* Which agent, and how it is reached. */
struct agent_spec {
	const char *host;     /* its name in `hosts`; "": this machine, which needs none */
	const char *launcher; /* the words of `launcher`, for launcher.h; of a name only */
	const char *engine;   /* ddip-engine over there; "": it is brought along */
	double linger;	      /* seconds that it outlives its connection */
};

/* Do its processes run on this machine? */
bool agent_process_is_here(const struct agent_spec *s);
/* Starts it: our end of the socket that is its connection, and its pid; or -errno. */
int agent_process_start(const struct agent_spec *s, pid_t *pid, struct err *e);

#endif
