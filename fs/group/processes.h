/* Handles the processes of a group starting, joining, failing and dying: see events.h. */
#ifndef PROCESSES_H
#define PROCESSES_H
#include "group/group.h"

/* Places and starts the ranks that lost their host, if `hosts` has room for them. If not, the group
 * lacks a host, and this is reported. Does nothing unless the group is ready. */
void processes_place(struct group *g);

#endif
