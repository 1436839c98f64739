/* Connections to hosts that nobody waits for any more while a group ends. */
#ifndef HOST_END_H
#define HOST_END_H
#include "group/group.h"

/* Hosts that are not connected yet are given up: nothing runs there. */
void host_end_connecting(struct group *g);
/* So are those of which processes are left: what runs there ends with the connection. */
void host_end_silent(struct group *g);

#endif
