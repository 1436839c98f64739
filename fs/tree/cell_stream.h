/* Live files of a cell: cells/N/stream and cells/N/wait; and the part of the former that G/stream
 * shares. */
#ifndef CELL_STREAM_H
#define CELL_STREAM_H
#include "tree/live.h"

/* Creates a reader of everything that a cell prints and displays, from the beginning, as JSON
 * lines. The caller frees it, and keeps a reference to the cell until then. */
struct live *cell_stream_new(const struct cell *c);
/* Answers a read at r->offset, now or when data arrives. Fails a read whose caller would wait for
 * itself. */
void cell_stream_read(struct cell *c, struct live *l, struct req *r);
unsigned cell_stream_poll(struct cell *c, struct live *l);

extern const struct file_ops cell_stream_ops;	   /* cells/N/stream */
extern const struct file_ops cell_stream_wait_ops; /* cells/N/wait */

#endif
