/* What the agents of hosts say of themselves: to the groups that it concerns. */
#ifndef HOST_NOTICE_H
#define HOST_NOTICE_H

void host_notice_init(void);

#endif
