/* The FUSE session as the rest of the daemon sees it. */
#ifndef SESSION_H
#define SESSION_H
#include "err.h"

struct session_options {
	const char *mountpoint, *fuse_opts; /* what `-o` had for FUSE, comma-separated; "" none */
};

/* Mounts and serves on the daemon's loop. 0 or -errno. */
int session_start(const struct session_options *o, struct err *e);
/* The kernel has answered: the mount can be used. Called once from the loop. */
void session_on_ready(void (*fn)(void));
/* Unmounts: nobody enters any more. */
void session_shut(void);
/* Answers every parked request and frees the session. */
void session_stop(void);

#endif
