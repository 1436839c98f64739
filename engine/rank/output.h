/*
 * Prints: passes Python's text to the agent through the ring shared with it (output_ring.h). If
 * there is no ring (a store, a forked child), or user code has put another file onto the
 * descriptor, the text is written there instead.
 *
 * All calls except out_wait and out_write_direct need the GIL, which is their lock.
 */
#ifndef OUT_H
#define OUT_H
#include "util.h"
#include <sys/types.h>

struct out {
	int fd, kind;
	struct buf line; /* what waits for its newline, when written directly */
};

/* Maps the ring of this rank. 0 or -errno. */
int out_open(int ring_fd, int wakeup_fd);
/* In a child that user code forked: the ring is the parent's. */
void out_leave(void);

/* Copies what there is room for and returns how much; 0: out_wait, then try again. -1: this stream
 * is not the agent's now, use out_direct. */
ssize_t out_put(const struct out *o, const char *p, size_t n);
/* Tells the agent, unless it looks by itself. */
void out_flush(void);
/* A look of the agent since the last out_put that returned 0, or 0.1 s. Without the GIL. */
void out_wait(void);

/* Adds to the line; what is to be written now (whole lines, or all of it if `all`) is moved to
 * *now. */
void out_direct(struct out *o, const char *p, size_t n, bool all, struct buf *now);

#endif
