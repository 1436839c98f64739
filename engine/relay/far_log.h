/* What the far relay and its agent write to 2, which goes to the daemon's log by the link. */
#ifndef FAR_LOG_H
#define FAR_LOG_H
#include "relay/link.h"

/* From here on 2 leads there. There is one per process. */
int far_log_take(struct loop *loop, struct link *l, struct err *e);
/* Sends a piece; false: there is nothing to send. */
bool far_log_more(void);

#endif
