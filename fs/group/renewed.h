/* Ranks that have been replaced, and have none of the variables that they had. */
#ifndef RENEWED_H
#define RENEWED_H
#include "group/group.h"

struct task;

/* The rank's process is gone: remembers how many variables it had, unless the group ends. */
void renewed_note(struct rank *k);
/* The rank has got the variables of another one. */
void renewed_forget(struct rank *k);
/* A cell begins. Returns what its writer must know of its ranks ("rank 2 is new since cell 17 and
 * has none of its 14 variables"), once; NULL: nothing. The caller owns it. */
char *renewed_notice(struct task *w);

#endif
