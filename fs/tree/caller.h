/* Requests from ranks: a cell that uses the mount of its own group must not wait for itself. */
#ifndef CALLER_H
#define CALLER_H
#include "group/group.h"
#include "base/req.h"

/* The rank that this process is or descends from; NULL if there is none. */
struct rank *caller_rank(pid_t pid);
/* May the caller of r wait for these ranks of g (an empty set: all of them)? Returns 0, or -EDEADLK
 * if the caller is a busy rank and is one of them, or if one of them waits for it, directly or
 * through others. */
int caller_check(struct group *g, const struct req *r, const struct rank_set *ranks, struct err *e);
/* The same for a wait that ends when the cell ends. */
struct cell;
int caller_check_cell(const struct cell *c, const struct req *r, struct err *e);
/* The same for a wait until g reaches its requested state: no rank of g may wait for that. */
int caller_check_group(struct group *g, const struct req *r, struct err *e);

#endif
