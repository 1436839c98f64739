/* The tree over 9P, on a Unix socket: the only header here that other folders include. */
#ifndef SERVER_H
#define SERVER_H
#include "err.h"

/* Serves at path (absolute) on the daemon's loop. 0 or -errno. */
int server_start(const char *path, struct err *e);
/* Nobody enters any more; the socket is removed. */
void server_shut(void);
/* Answers every parked request and ends the connections; after copy_stop(). */
void server_stop(void);

#endif
