/* Live readers of what ranks print. */
#ifndef STREAM_FILE_H
#define STREAM_FILE_H
#include "tree/output_file.h"

extern const struct file_ops follow_rank_ops;	/* rankK/follow */
extern const struct file_ops follow_all_ops;	/* log */
extern const struct file_ops follow_stream_ops; /* cells/N/stream */
extern const struct file_ops follow_wait_ops;	/* cells/N/wait */

/* Readers hear of output by the groups' hooks; once, before any group is made. */
void stream_file_init(void);

#endif
