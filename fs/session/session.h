/* The FUSE session as the rest of the daemon sees it. */
#ifndef SESSION_H
#define SESSION_H
#include "err.h"

struct session_options {
	const char *mountpoint, *fuse_opts; /* FUSE's part of `-o`, comma-separated; "" if none */
};

/* Mounts, and serves requests on the daemon's loop. Returns 0, or -errno with *e set. */
int session_start(const struct session_options *o, struct err *e);
/* fn is called once, from the loop, when the kernel has answered and the mount can be used. */
void session_on_ready(void (*fn)(void));
/* Unmounts: no new requests arrive. */
void session_shut(void);
/* Answers every parked request and frees the session. */
void session_stop(void);

#endif
