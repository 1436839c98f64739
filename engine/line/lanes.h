/* The lanes of one end of a line: sockets, and the packets that carry their bytes. */
#ifndef LANES_H
#define LANES_H
#include "line/line.h"

struct lanes;

/* fds: the sockets, this module's from now on. ended: called once, from the loop, when the first
 * one has been closed. */
struct lanes *lanes_new(
    struct loop *loop, struct line *l, const int fds[LINE_LANES], void (*ended)(void));
void lanes_free(struct lanes *ls); /* NULL-safe; not in a callback of the loop for a lane */
/* Sends a piece of what is read when there is room. Returns false if there is none. */
bool lanes_more(struct lanes *ls);
/* Writes bytes that have come for this lane. */
void lanes_take(struct lanes *ls, int lane, struct slice bytes);
/* Blocks until all that has come is written. */
void lanes_flush(struct lanes *ls);

#endif
