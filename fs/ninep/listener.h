/* The socket in the file system: made for this user alone, one daemon on each. */
#ifndef LISTENER_H
#define LISTENER_H
#include "err.h"

/* Listens at path (absolute). One that a daemon has left behind is taken over, one that is served
 * is refused. A descriptor, or -errno. */
int listener_open(const char *path, struct err *e);
/* Closes it, and removes the socket if it is still ours. */
void listener_close(int fd, const char *path);

#endif
