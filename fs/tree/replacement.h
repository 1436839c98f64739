/*
 * Handles programs that remove a file in order to write it again, as mv(1) into the mount,
 * install(1) and tar(1) do. The removal of a view is delayed for a moment: if its process writes
 * the same name again, the object is replaced as cp(1) would, and the variable keeps its type (a
 * tensor, a module).
 */
#ifndef REPLACEMENT_H
#define REPLACEMENT_H
#include "tree/tree.h"

void replacement_init(void);

typedef void replacement_remove_fn(const struct place *at, const char *name);

/* This process has removed a view of the variable: the name is hidden from now on. Calls remove
 * when the process ends, after a second, or before the next task of the group, whichever comes
 * first. */
void replacement_expect(
    const struct place *at, const char *name, pid_t process, replacement_remove_fn *remove);
/* The process opens the name in this directory for writing, which cancels its own removal of it.
 * All other pending removals of the group are carried out. */
void replacement_claim(const struct place *at, const char *name, pid_t process);
/* Is a removal of the name pending, in a directory that shows the same rank? */
bool replacement_hides(const struct place *at, const char *name);
/* Calls fn for each name that is hidden in a directory. */
void replacement_each(const struct place *at, void (*fn)(void *arg, const char *name), void *arg);

#endif
