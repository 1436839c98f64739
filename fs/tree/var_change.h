/* Changes of variables: pushes, rm and mv, as tasks of the group. */
#ifndef VAR_CHANGE_H
#define VAR_CHANGE_H
#include "object/pull.h"
#include "object/push.h"
#include "tree/tree.h"
#include "tree/var_ticks.h"

/* May an object be pushed to at->name now? Checks the name, its view, the group's state, and
 * whether a rank is external. Returns 0, or -errno with the text in e. */
int var_change_check(const struct place *at, struct err *e);
/* Pushes the contents of p. On success, takes ownership of *told (the event of creating the name,
 * or NULL) and clears it. With waits, parks r until the push has completed on all its ranks or on
 * none; otherwise returns 0 once it is queued, with its task in r->waits_for. On -errno nothing
 * happens. */
int var_change_push(
    const struct place *at, struct push *p, struct var_told **told, struct req *r, bool waits);
/* The same for a staged file that was given a variable's name: later opens of that name wait for
 * it. Returns its task, or NULL with e. */
struct task *var_change_push_staged(const struct place *at, struct push *p, struct err *e);
/* rm by this process, and mv: only queued. */
int var_change_remove(const struct place *at, pid_t process, struct err *e);
int var_change_rename(const struct place *from, const struct place *to, struct err *e);

/* Creates a pull of the object that at and name refer to. NULL with e if a rank to be asked has no
 * engine. */
struct pull *var_change_pull(const struct place *at, const struct var_name *name, struct err *e);

/* Calls fn whenever a change has ended for which var_names_settling() may have returned true. */
void var_change_on_settled(void (*fn)(void));

#endif
