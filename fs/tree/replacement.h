/*
 * Handles programs that remove a file to write it again, as mv(1) into the mount, install(1) and
 * tar(1) do. The removal of a view is delayed for a moment: if its process writes that name again,
 * the object is replaced as by cp(1), and the variable keeps its type (a tensor, a module).
 */
#ifndef REPLACEMENT_H
#define REPLACEMENT_H
#include "tree/tree.h"

void replacement_init(void);

typedef void replacement_remove_fn(const struct place *at, const char *name);

/* This process has removed a view of the variable: from now on the name is not there. remove is
 * called when the process ends, after a second, or before anything else that the ranks of this
 * group are to do. */
void replacement_expect(
    const struct place *at, const char *name, pid_t process, replacement_remove_fn *remove);
/* The process opens the name in this directory to write it: nothing will be removed. What others
 * have removed of this group is. */
void replacement_claim(const struct place *at, const char *name, pid_t process);
/* Removes now what waits in this group. */
void replacement_settle(struct group *g);
/* Does the name wait, in a directory that shows the same rank? */
bool replacement_hides(const struct place *at, const char *name);
/* Calls fn for all names that it hides in a directory. */
void replacement_each(const struct place *at, void (*fn)(void *arg, const char *name), void *arg);

#endif
