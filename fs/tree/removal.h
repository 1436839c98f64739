/*
 * Refuses removals of variables that a program requests by mistake: mv(1) out of the mount after it
 * has copied only the text, or rm -r that could not remove the files next to `vars`.
 */
#ifndef REMOVAL_H
#define REMOVAL_H
#include "tree/tree.h"

/* This process reads a variable as text that does not represent the whole object. */
void removal_text_read(pid_t process, const struct place *at, const char *name);
/* This process was refused the removal of something that is not a variable. at may belong to no
 * group. */
void removal_refused(pid_t process, const struct place *at);
/* May the process remove the variable? Returns 0, -EOPNOTSUPP (once only) or -EACCES. */
int removal_check(pid_t process, const struct place *at, const char *name, struct err *e);

#endif
