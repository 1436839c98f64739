/* What ranks print, as files: stdout and stderr as they grow, `follow`, `log`, a cell's `stream`. */
#ifndef LOG_H
#define LOG_H
#include "cell.h"
#include "tree.h"

extern const struct file_ops log_stdout_ops, log_stderr_ops;           /* rankK/… */
extern const struct file_ops log_follow_ops;                           /* rankK/follow */
extern const struct file_ops log_all_ops;                              /* log */
extern const struct file_ops log_cell_stdout_ops, log_cell_stderr_ops; /* cells/N/rankK/… */
extern const struct file_ops log_jsonl_ops;                            /* cells/N/stream */
extern const struct file_ops log_wait_ops;                             /* cells/N/wait */

/* Watches the spools of a group (inotify) from now on, no more. */
void log_follow(struct group *g);
void log_gone(struct group *g);
/* A cell began or ended: its live readers may go on. */
void log_wake(struct group *g);
/* Applies `spool`: drops what is too much. */
void log_trim(struct group *g);

#endif
