/* Live files of a cell: cells/N/stream and cells/N/wait; and what G/stream has of the first. */
#ifndef CELL_STREAM_H
#define CELL_STREAM_H
#include "tree/live.h"

/* A reader of all that a cell prints and displays, from its beginning: JSON lines. The caller frees
 * it, and keeps the cell until then. */
struct live *cell_stream_new(const struct cell *c);
/* Answers a read at r->offset, now or when there is something; refuses one that waits for itself.
 */
void cell_stream_read(struct cell *c, struct live *l, struct req *r);
unsigned cell_stream_poll(struct cell *c, struct live *l);

extern const struct file_ops cell_stream_ops;	   /* cells/N/stream */
extern const struct file_ops cell_stream_wait_ops; /* cells/N/wait */

#endif
