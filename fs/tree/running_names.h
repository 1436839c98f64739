/* What running cells have set since their ranks last reported their variables: the ranks are asked
 * again before the names are listed. */
#ifndef RUNNING_NAMES_H
#define RUNNING_NAMES_H
#include "tree/tree.h"

struct running_names;

/* Asks those ranks of g that run a cell for their tables of variables; rank: only this one, -1:
 * all. Calls done(arg) once, when all have answered or it makes no sense to wait any longer, as for
 * a rank that runs no Python. Returns NULL, without calling done, if no rank is asked. */
struct running_names *running_names_ask(
    struct group *g, int rank, void (*done)(void *arg), void *arg);
/* done will not be called. */
void running_names_cancel(struct running_names *n);

/* Directories of variables: opening one asks the rank whose variables it lists. */
extern const struct file_ops running_names_ops;

#endif
