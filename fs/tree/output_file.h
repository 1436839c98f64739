/* What ranks print, as files that grow: a rank's stdout and stderr, and a cell's part of them. */
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H
#include "group/cell.h"
#include "tree/tree.h"

extern const struct file_ops log_stdout_ops, log_stderr_ops;	       /* rankK/… */
extern const struct file_ops log_cell_stdout_ops, log_cell_stderr_ops; /* cells/N/rankK/… */

/* Watches the spools of a group (inotify) from now on, no more. */
void log_follow(struct group *g);
void log_gone(struct group *g);
/* A cell began or ended: its live readers may go on. */
void log_wake(struct group *g);
/* Walks a rank's index to its end (k->tail); wakes watchers of what grew. */
void log_advance(struct rank *k);
/* Applies `spool`: drops what is too much. */
void log_trim(struct group *g);

#endif
