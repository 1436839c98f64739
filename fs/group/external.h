/*
 * Ranks that are processes of other programs (the setting `external`): which they are, and how one
 * joins. The group has no process or slot for them and queues nothing there.
 */
#ifndef EXTERNAL_H
#define EXTERNAL_H
#include "group/group.h"

bool external_is(const struct rank *k);
/* Returns 0, or -EOPNOTSUPP with *e set if this rank is external. */
int external_refuse(const struct rank *k, struct err *e);
bool external_any(const struct group *g);
/* Stores the group's own ranks, those that are not external. */
void external_own(const struct group *g, struct rank_set *out);
/* The first of the group's own ranks: G/vars shows its objects. */
int external_first(const struct group *g);
/* Are all ranks except the external ones in this state? */
bool external_others_are(const struct group *g, enum rank_state state);
/* Returns 0, or -EINVAL with *e set if every rank is external. */
int external_leaves_some(const struct group *g, struct err *e);
/* Checks the setting against the group's current size. Returns 0, or -EINVAL with *e set. */
int external_check(const struct group *g, struct err *e);
#endif
