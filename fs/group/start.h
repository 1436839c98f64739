/* What comes before the first process of a group is asked for: ranks, places, agents. */
#ifndef START_H
#define START_H
#include "group/group.h"

/* As many ranks as the settings ask for. What waits for those that there were would run on too few
 * of them, or on ranks that are no more: it is dropped. */
void start_make_ranks(struct group *g);
/* Checks all that may be wrong, makes the ranks, places them, and starts their hosts' agents. 0, or
 * -errno with e, which is the group's start_error then. */
int start_prepare(struct group *g, struct err *e);

#endif
