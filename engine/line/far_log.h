/* Descriptor 2 of the far relay and its agent: the link carries it to the daemon's log. */
#ifndef FAR_LOG_H
#define FAR_LOG_H
#include "line/link.h"

/* Redirects descriptor 2 to the link. There is one log per process. */
int far_log_take(struct loop *loop, struct link *l, struct err *e);
/* Sends one piece. Returns false if there is nothing to send. */
bool far_log_more(void);

#endif
