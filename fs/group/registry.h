/*
 * All groups: creates, removes and finds them, and counts references for users that outlive a
 * group's removal.
 */
#ifndef REGISTRY_H
#define REGISTRY_H
#include "group/group.h"

TAILQ_HEAD(group_list, group);
extern struct group_list groups;

int group_make(const char *name, struct err *e); /* returns 0, or -errno with *e set */
/* Returns 0, or -EBUSY with *e set while the group has engines. */
int group_remove(struct group *g, struct err *e);
struct group *group_find(const char *name); /* NULL if there is none */
struct group *group_ref(struct group *g);
void group_unref(struct group *g);
void group_remove_all(void);

#endif
