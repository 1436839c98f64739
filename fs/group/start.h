/* Prepares the start of a group before its first process is requested: ranks, places, agents. */
#ifndef START_H
#define START_H
#include "group/group.h"

/* Makes as many ranks as the settings ask for. If the number changes, drops what is queued: it
 * would run on too few ranks, or on ranks that no longer exist. While processes are left, does
 * nothing: it is called again once the last has ended. */
void start_make_ranks(struct group *g);
/* Checks everything that may be wrong, makes and places the ranks, and starts the agents of their
 * hosts. Returns 0, or -errno with *e set, which also becomes the group's start_error. */
int start_prepare(struct group *g, struct err *e);
/* Reports the modules of `preload` that this host's zygote could not import. A start goes on
 * without them. */
void start_tell_preload(struct group *g, const struct host *h);

#endif
