/* A rank: its state, and what its process reports (passed on through hooks.h). */
#ifndef RANK_H
#define RANK_H
#include "group/group.h"
#include "host/agent.h"

/* Handles what an agent reports about a rank's process. */
extern const struct slot_ops rank_slot;

void rank_fini(struct rank *k); /* its queue must be empty */
/* Makes as many ranks as the settings ask for, without processes. Does nothing if the number is
 * right already, or while processes are left. If the number changes, nothing may be queued. */
void rank_make_all(struct group *g);
/* Are there as many ranks as the settings ask for? */
bool rank_all_made(const struct group *g);
/* Does any rank, or the store, have a process? */
bool rank_any_process(const struct group *g);
const char *rank_state_name(struct rank *k);
void rank_set_state(struct rank *k, enum rank_state state);
/* The rank's process has ended; how: a description. */
void rank_set_dead(struct rank *k, const char *how);
/* Sets the rank's variables, as it reports them. */
void rank_set_table(struct rank *k, struct slice text);
/* The rank's process is gone, or never started: nothing may be sent to it. */
void rank_gone(struct rank *k, const struct err *why);
/* Records a phase of the start, for `status`. */
void rank_phase(struct group *g, const char *name, double ms);

#endif
