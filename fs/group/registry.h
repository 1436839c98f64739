/*
 * All groups: making, removing and finding them; references for those who use a group after its
 * removal.
 */
#ifndef REGISTRY_H
#define REGISTRY_H
#include "group/group.h"

TAILQ_HEAD(group_list, group);
extern struct group_list groups;

int group_make(const char *name, struct err *e); /* 0 or -errno */
/* -EBUSY while it has engines. */
int group_remove(struct group *g, struct err *e);
struct group *group_find(const char *name); /* NULL: none */
struct group *group_ref(struct group *g);
void group_unref(struct group *g);
void group_remove_all(void);

#endif
