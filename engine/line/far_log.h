/* Descriptor 2 of the far relay and its agent: the line carries it to the daemon's log. */
#ifndef FAR_LOG_H
#define FAR_LOG_H
#include "line/line.h"

/* Redirects descriptor 2 to the line. There is one log per process. */
int far_log_take(struct loop *loop, struct line *l, struct err *e);
/* Sends one piece. Returns false if there is nothing to send. */
bool far_log_more(void);

#endif
