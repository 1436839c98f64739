/*
 * Prints: passes Python's text to the agent through the ring shared with it (output_ring.h). If
 * there is no ring (a store, a forked child), or user code has redirected the descriptor, the text
 * is written to the descriptor instead.
 *
 * All calls except out_wait need the GIL, which is their lock.
 */
#ifndef OUT_H
#define OUT_H
#include "util.h"
#include <sys/types.h>

struct out {
	int fd, kind;
	struct buf line; /* direct writes: text that waits for its newline */
};

/* Maps the ring of this rank. Returns 0 or -errno. */
int out_open(int ring_fd, int wakeup_fd);
/* For a child that user code forked: the ring belongs to the parent. */
void out_leave(void);

/* Copies as much as there is room for and returns the number of bytes. 0: call out_wait, then try
 * again. -1: this stream does not go to the agent now, use out_direct. */
ssize_t out_put(const struct out *o, const char *p, size_t n);
/* Wakes the agent, unless it is already polling the ring. */
void out_flush(void);
/* Waits, for at most 0.1 s, until the agent has looked at the ring since the last out_put that
 * returned 0. Call it without the GIL. */
void out_wait(void);

/* Appends to the line. If p has a newline, the line has grown long, or `all` is set, moves all of
 * the text to *now, for the caller to write. */
void out_direct(struct out *o, const char *p, size_t n, bool all, struct buf *now);

#endif
