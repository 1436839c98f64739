/* Files that accept verbs, one per line. */
#ifndef CTL_FILE_H
#define CTL_FILE_H
#include "tree/tree.h"

extern const struct file_ops ctl_file_group_ops; /* G/ctl */
extern const struct file_ops ctl_file_rank_ops;	 /* G/rankK/ctl */
extern const struct file_ops ctl_file_cell_ops;	 /* G/cells/N/ctl */

#endif
