/*
 * Refuses the removal of variables that a program asks for by mistake: a mv(1) out of the mount
 * that has copied only the text, an rm -r that could not remove what lies beside.
 */
#ifndef REMOVAL_H
#define REMOVAL_H
#include "tree/tree.h"

/* This process reads a variable as text that does not hold all of the object. */
void removal_text_read(pid_t process, const struct place *at, const char *name);
/* This process was refused the removal of something that is no variable; at may be of no group. */
void removal_refused(pid_t process, const struct place *at);
/* May it remove the variable? 0, or -EOPNOTSUPP (once), -EACCES. */
int removal_check(pid_t process, const struct place *at, const char *name, struct err *e);

#endif
