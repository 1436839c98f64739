/* The zygote's forking server: one thread, one socket, no event loop that a child could share. */
#ifndef ZYGOTE_H
#define ZYGOTE_H
#include "rank/rank.h"

/* The interpreter's own handlers around a fork; called with the GIL held. */
struct zygote_hooks {
	void (*before)(void), (*parent)(void), (*child)(void);
};

/* Who a forked child is. */
struct zygote_child {
	uint32_t kind; /* ENGINE_RANK, ENGINE_STORE, ENGINE_SUCCESSOR */
	char *name;
	struct buf env; /* K=V, or K to be taken away; each ended by NUL */
};

/* fd is the socket to the agent, whose pid is agent. */
void zygote_open(int fd, pid_t agent);
/* Serves forks; returns only in a child, which has its own descriptors then and, unless it is a
 * successor, its I/O thread. The zygote itself ends in here. */
void zygote_serve(const struct zygote_hooks *hooks, struct zygote_child *child);

#endif
