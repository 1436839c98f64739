/* Cells: their numbers, history and outcomes. */
#ifndef CELL_H
#define CELL_H
#include "base/record.h"
#include "group/task.h"

enum { SOURCE_MAX = 16 << 20 };

/* Adds a new cell on these ranks to the history; the caller submits its task. */
struct cell *cell_new(struct group *g, const struct rank_set *on, struct slice source);
/* Creates and submits a cell on these ranks (n 0: on all of the group's own). Returns NULL with *e
 * set on failure. */
struct cell *cell_submit(
    struct group *g, const struct rank_set *ranks, struct slice source, struct err *e);
struct cell *cell_find(struct group *g, int number);
/* The cell with the next higher number; NULL if there is none. */
struct cell *cell_after(struct group *g, int number);
struct cell *cell_ref(struct cell *c);
void cell_unref(struct cell *c);
struct subtask *cell_subtask(const struct cell *c, int rank); /* NULL: not one of its ranks */
/* Drops the cells that ended first, beyond the setting `history`; never the one that ended last,
 * nor the last one that was submitted. */
void cell_prune(struct group *g);
void cell_drop_all(struct group *g);
/* The contents of the files under cells/N. */
void cell_status(const struct cell *c, struct record *out);
void cell_error(const struct cell *c, struct record *out);
void cell_traceback(const struct cell *c, struct buf *out);
void cell_result(const struct cell *c, struct buf *out);

#endif
