/* The FUSE session: the only face of fuse.c to the rest. */
#ifndef FUSE_H
#define FUSE_H
#include "err.h"

struct fuse_options {
	const char *mountpoint, *fuse_opts; /* what `-o` had for FUSE, comma-separated; "" none */
};

/* Mounts and serves on the daemon's loop. 0 or -errno. */
int fuse_start(const struct fuse_options *o, struct err *e);
/* The kernel has answered: the mount can be used. Called once from the loop. */
void fuse_on_ready(void (*fn)(void));
/* Unmounts: nobody enters any more. */
void fuse_shut(void);
/* Answers every parked request and frees the session. */
void fuse_stop(void);

#endif
