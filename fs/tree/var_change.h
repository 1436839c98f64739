/* What changes variables: pushes, rm and mv, as tasks of the group. */
#ifndef VAR_CHANGE_H
#define VAR_CHANGE_H
#include "object/pull.h"
#include "object/push.h"
#include "tree/tree.h"
#include "tree/var_ticks.h"

/* May an object be pushed to at->name now? 0, or -errno with the text: the name, its view, the
 * group's state, a rank that is external. */
int var_change_check(const struct place *at, struct err *e);
/* Pushes what p holds; *told, of a name that was made for it, goes with it. waits: r is parked
 * until it is done on all its ranks, or on none; else 0: it is queued. -errno: nothing happens. */
int var_change_push(
    const struct place *at, struct push *p, struct var_told **told, struct req *r, bool waits);
/* The same for a staged file that got a variable's name: what is opened under that name waits for
 * it. */
int var_change_push_staged(const struct place *at, struct push *p, struct err *e);
/* rm by this process, mv: queued. */
int var_change_remove(const struct place *at, pid_t process, struct err *e);
int var_change_rename(const struct place *from, const struct place *to, struct err *e);

/* A pull of what at and name stand for; NULL with e: a rank that is to be asked has no engine. */
struct pull *var_change_pull(const struct place *at, const struct var_name *name, struct err *e);

/* Called whenever something has ended that var_names_settling() told of. */
void var_change_on_settled(void (*fn)(void));

#endif
