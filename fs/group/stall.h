/* Who is waiting for whom: `stall`, and the event when nothing moves. */
#ifndef STALL_H
#define STALL_H
#include "tree/tree.h"

struct work;

extern const struct file_ops stall_ops; /* G/stall */

/* A cell has begun: looks at it each `stall` seconds until it has ended, and tells when nothing
 * moves. */
void stall_watch(struct work *w);

#endif
