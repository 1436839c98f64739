/* Drops the hosts that a group need not wait for while it ends, except those where other groups
 * have processes. */
#ifndef HOST_END_H
#define HOST_END_H
#include "group/group.h"

/* Gives up the hosts that are not connected yet: nothing runs there. */
void host_end_connecting(struct group *g);
/* Gives up the hosts whose processes have not been reported as ended: what still runs there ends
 * with the connection. */
void host_end_silent(struct group *g);

#endif
