/* rankK/follow and log: live files of the ranks' output. */
#ifndef STREAM_FILE_H
#define STREAM_FILE_H
#include "tree/tree.h"

text_fn stream_file_log_last;			     /* G/log.last */
extern const struct file_ops stream_file_follow_ops; /* rankK/follow */
extern const struct file_ops stream_file_log_ops;    /* log */

#endif
