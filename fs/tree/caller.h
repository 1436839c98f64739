/* Calls from ranks: a cell that uses the mount it is run by must not wait for itself. */
#ifndef CALLER_H
#define CALLER_H
#include "group/group.h"
#include "base/req.h"

/* The rank that this process belongs to (itself, or one of its children), NULL: none. */
struct rank *caller_rank(pid_t pid);
/* May the caller of r wait for these ranks of g (n 0: all of them)? -EDEADLK if it is one of them
 * and works, or if one of them waits, through others, for it. */
int caller_check(struct group *g, const struct req *r, const int *ranks, int n, struct err *e);
/* The same for a wait that ends when the cell does. */
struct cell;
int caller_check_cell(const struct cell *c, const struct req *r, struct err *e);
/* The same for a wait until all ranks of g are as asked for: none of its own may wait. */
int caller_check_group(struct group *g, const struct req *r, struct err *e);

#endif
