/* Files that accept cells: cell, cell.LIST, rankK/cell, steer, stream, stream.LIST. */
#ifndef CELL_FILE_H
#define CELL_FILE_H
#include "tree/tree.h"

extern const struct file_ops cell_file_ops;	   /* G/cell, G/cell.LIST, G/rankK/cell */
extern const struct file_ops cell_file_steer_ops;  /* G/steer */
extern const struct file_ops cell_file_stream_ops; /* G/stream, G/stream.LIST */

#endif
