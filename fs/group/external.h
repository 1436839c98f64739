/*
 * Ranks that are other programs' processes (the setting `external`): which they are, and how one
 * joins. The group has no process, slot or queue for them.
 */
#ifndef EXTERNAL_H
#define EXTERNAL_H
#include "group/group.h"

bool external_is(const struct rank *k);
/* These n ranks, ascending, and no others. */
void external_set(struct settings *s, const int *ranks, int n);
/* 0, or -EOPNOTSUPP with the text: this rank is external. */
int external_refuse(const struct rank *k, struct err *e);
bool external_any(const struct group *g);
/* The numbers of the ranks that are the group's own into ranks[MAX_RANKS]: how many. */
int external_own(const struct group *g, int *ranks);
/* The number of the first of them: whose objects G/vars shows. */
int external_first(const struct group *g);
/* Are all ranks but the external ones in this state? */
bool external_others_are(const struct group *g, enum rank_state state);
/* 0, or -EINVAL with the text: every rank is external. */
int external_leaves_some(const struct group *g, struct err *e);
/* With as many ranks as there will be: 0, or -EINVAL if they cannot be so. */
int external_check(const struct group *g, struct err *e);
/* "1,3" of what is set, nothing for none. */
void external_list(const struct settings *s, struct buf *out);
#endif
