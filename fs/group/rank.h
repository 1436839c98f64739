/* A rank: its state, and what its process reports (hooks.h says who hears of it). */
#ifndef RANK_H
#define RANK_H
#include "group/group.h"
#include "host/agent.h"

/* What an agent tells of a rank's process. */
extern const struct slot_ops rank_slot;

void rank_fini(struct rank *k); /* its queue is empty */
/* As many ranks as the settings want, none of them with a process; nothing while processes are
 * left. Where there are not as many already, nothing may be queued. */
void rank_make_all(struct group *g);
/* Are there as many ranks as the settings want? */
bool rank_all_made(const struct group *g);
/* Has a rank or the store a process? */
bool rank_any_process(const struct group *g);
const char *rank_state_name(struct rank *k);
void rank_set_state(struct rank *k, enum rank_state state);
/* Its process has ended; how: text. */
void rank_set_dead(struct rank *k, const char *how);
/* Its variables, as it reports them. */
void rank_set_table(struct rank *k, struct slice text);
/* Its process is gone, or never came: nothing is sent there any more. */
void rank_gone(struct rank *k, const struct err *why);
/* A phase of the start, for `status`. */
void rank_phase(struct group *g, const char *name, double ms);

#endif
