/*
 * `clone`: one rank's namespace is copied to others. The task has a subtask of that rank, too,
 * which comes first: its bytes are read (the view `clone` of `__main__`, which only the daemon asks
 * for), and then sent to the other ranks. What they do with them is in
 * engine/ddip_engine/data/clone_load.py.
 */
#ifndef CLONE_H
#define CLONE_H
#include "group/group.h"

struct task;
struct subtask;

/* The bytes are there, or e->no is set: why not. */
typedef void clone_fn(struct task *w, const struct err *e);

/* Creates the task; words: FROM TO... or FROM all. The caller submits it; it frees itself when it
 * ends. Returns NULL with *e set: EINVAL, or ESRCH if no engine runs. */
struct task *clone_new(struct group *g, char **words, int n, struct err *e);
/* Reads the bytes of the rank that is copied. Calls fn once, possibly before it returns, unless the
 * task ends before. */
void clone_read(struct task *w, clone_fn *fn);
/* The bytes are no longer wanted: fn gets EINTR, after this has returned. */
void clone_interrupt(struct task *w);
/* A rank has taken the bytes. failures: a line `NAME: reason` for each name that was not copied;
 * names: how many were. wrapped: all ranks need new reducers. Returns 0, or -errno with *e set if
 * nothing was copied. */
int clone_taken(
    struct subtask *j, struct slice failures, uint32_t names, bool wrapped, struct err *e);

#endif
