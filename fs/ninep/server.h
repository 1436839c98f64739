/* The tree over 9P, on a Unix socket. The only header here that other folders include. */
#ifndef SERVER_H
#define SERVER_H
#include "err.h"

/* Serves at path (absolute) on the daemon's loop. Returns 0, or -errno with *e set. */
int server_start(const char *path, struct err *e);
/* Stops accepting connections and requests; removes the socket. */
void server_shut(void);
/* Answers every parked request and closes the connections. Call after copy_stop(). */
void server_stop(void);

#endif
