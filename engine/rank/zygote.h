/* The zygote's forking server: one thread, one socket, no event loop that a child could share. */
#ifndef ZYGOTE_H
#define ZYGOTE_H
#include "rank/rank.h"

/* The interpreter's own fork handlers, called with the GIL held. */
struct zygote_hooks {
	void (*before)(void), (*parent)(void), (*child)(void);
};

/* What a forked child becomes. */
struct zygote_child {
	uint32_t kind; /* ENGINE_RANK, ENGINE_STORE, ENGINE_SUCCESSOR */
	char *name;
	struct buf env; /* K=V to set, or K to remove; each terminated by NUL */
};

/* fd is the socket to the agent; agent is the agent's pid. */
void zygote_open(int fd, pid_t agent);
/* Serves fork requests. Returns only in a child, which then has its own descriptors and, unless it
 * is a successor, an I/O thread. The zygote itself exits in here. */
void zygote_serve(const struct zygote_hooks *hooks, struct zygote_child *child);

#endif
