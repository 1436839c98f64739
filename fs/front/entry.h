/* Names in directories, whichever front end asks: looked up, made, removed, renamed. Failures are 0
 * or -errno; those with a text are in the group's `error`. */
#ifndef ENTRY_H
#define ENTRY_H
#include "tree/tree.h"

/* Is it a directory where variables live? */
bool entry_in_vars(const struct node *dir);
/* The node of a variable's name there, one lookup more. */
struct node *entry_var(const struct node *dir, const char *name);
/* Of a name that tree_lookup() does not find: may the rank know it? */
bool entry_may_ask(const struct node *dir, const char *name);
/* Asks the rank, for r. 0: n, which entry_var() made, is there; -errno, or PARKED. */
int entry_ask(const struct node *n, struct req *r);
/* A node to be opened with O_CREAT, in a directory where there is no such name: NULL with *error.
 */
struct node *entry_create(
    const struct node *dir, const char *name, int flags, mode_t mode, struct err *e);
/* mkdir, rmdir: of groups. */
int entry_make_dir(const struct node *dir, const char *name, struct err *e);
int entry_remove_dir(const struct node *dir, const char *name, struct err *e);
/* rm by this process. */
int entry_remove(const struct node *dir, const char *name, pid_t process, struct err *e);
int entry_rename(const struct node *dir, const char *name, const struct node *to_dir,
    const char *to, struct err *e);

#endif
