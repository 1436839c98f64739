/* Operations on names in directories, for all front ends: look up, create, remove, rename. They
 * return 0 or -errno; a failure that has a text is also recorded in the group's `error`. */
#ifndef ENTRY_H
#define ENTRY_H
#include "tree/tree.h"

/* Is dir a directory of variables? */
bool entry_in_vars(const struct node *dir);
/* The node of a variable's name in dir, or of a key's, or of the directory NAME.d. Its lookup count
 * is incremented. */
struct node *entry_var(const struct node *dir, const char *name);
/* The node of a name that is known to exist, as it has been listed or is part of another's path.
 * NULL if it no longer does. */
struct node *entry_known(struct node *dir, const char *name);
/* For a name that tree_lookup() does not find: could the rank know it? */
bool entry_may_ask(const struct node *dir, const char *name);
/* Asks the rank, on behalf of r, whether it has the variable of n, which entry_var() made. Returns
 * PARKED; the answer is 0 or -errno. */
int entry_ask(const struct node *n, struct req *r);
/* A node to be opened with O_CREAT, for a name that dir does not have yet. Returns NULL with *e set
 * on failure. */
struct node *entry_create(
    const struct node *dir, const char *name, int flags, mode_t mode, struct err *e);
/* mkdir and rmdir, of groups. */
int entry_make_dir(const struct node *dir, const char *name, struct err *e);
int entry_remove_dir(const struct node *dir, const char *name, struct err *e);
/* rm; process is the one that asks for it. */
int entry_remove(const struct node *dir, const char *name, pid_t process, struct err *e);
int entry_rename(const struct node *dir, const char *name, const struct node *to_dir,
    const char *to, struct err *e);

#endif
