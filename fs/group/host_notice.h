/* Passes notices from the agents about themselves to the groups concerned. */
#ifndef HOST_NOTICE_H
#define HOST_NOTICE_H

void host_notice_init(void);

#endif
