/* The socket in the file system: accessible to this user only, and served by one daemon. */
#ifndef LISTENER_H
#define LISTENER_H
#include "err.h"

/* Listens at path (absolute). Replaces a socket that a daemon has left behind; fails if the socket
 * is being served. waits: for others who do that in this directory; else it fails. Returns a
 * descriptor, or -errno with *e set. */
int listener_open(const char *path, bool waits, struct err *e);
/* Returns 0 if path (absolute) is a socket that a daemon has left behind, -EADDRINUSE if it is
 * served, or another -errno. */
int listener_check(const char *path);
/* Has something removed the socket, or the directory that it is in? */
bool listener_gone(const char *path);
/* Closes fd, and removes the socket if it is still ours. */
void listener_close(int fd, const char *path);

#endif
