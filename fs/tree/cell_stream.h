/* Live files of a cell: cells/N/stream and cells/N/wait. */
#ifndef CELL_STREAM_H
#define CELL_STREAM_H
#include "tree/tree.h"

extern const struct file_ops cell_stream_ops;	   /* cells/N/stream */
extern const struct file_ops cell_stream_wait_ops; /* cells/N/wait */

#endif
