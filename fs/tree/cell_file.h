/* Files that accept cells: cell, cell.LIST, rankK/cell, steer, watch, stream, stream.LIST. */
#ifndef CELL_FILE_H
#define CELL_FILE_H
#include "tree/tree.h"

extern const struct file_ops cell_file_ops;	  /* G/cell, G/cell.LIST, G/rankK/cell */
extern const struct file_ops cell_file_steer_ops; /* G/steer */
extern const struct file_ops cell_file_watch_ops; /* G/watch */
/* Connects the readers to the groups' hooks. Call once, before any group is created. */
void cell_file_init(void);
extern const struct file_ops cell_file_stream_ops; /* G/stream, G/stream.LIST */

#endif
