/* Files that take what is written: `cell`, `ctl`, and their kin. */
#ifndef INPUT_H
#define INPUT_H
#include "tree/tree.h"

extern const struct file_ops input_cell_ops;	 /* G/cell, G/cell.LIST, G/rankK/cell */
extern const struct file_ops input_ctl_ops;	 /* G/ctl */
extern const struct file_ops input_rank_ctl_ops; /* G/rankK/ctl */
extern const struct file_ops input_cell_ctl_ops; /* G/cells/N/ctl */
extern const struct file_ops input_stdin_ops;	 /* G/rankK/stdin */
extern const struct file_ops input_error_ops;	 /* G/error: truncating clears */

/* Is the flush of this request the writer's own close (and not that of a child that inherited the
 * descriptor)? */
bool input_is_close(const struct file *f, const struct req *r);

#endif
