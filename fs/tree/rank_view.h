/* Texts that a rank's Python makes for a file, while the file is opened. */
#ifndef RANK_VIEW_H
#define RANK_VIEW_H
#include "group/group.h"
#include "tree/tree.h"

/* What the file does without the text: returns the result of the open. */
typedef int rank_view_failed_fn(struct file *f, struct err *e);

/* Asks the rank, which must have an engine, for a view of a name (see Tget), and appends the text
 * to f->text. Returns PARKED. failed is called if there is none: the rank refuses, ends, or runs no
 * Python (EAGAIN); NULL: the open fails. */
int rank_view_ask(struct file *f, struct req *r, struct rank *k, const char *name, const char *view,
    rank_view_failed_fn *failed);

#endif
