/* One engine: spawning, its first messages, its notices, its end. */
#ifndef RANK_H
#define RANK_H
#include "group/group.h"
#include "host/agent.h"

void rank_init(struct rank *k, struct group *g, int number);
void rank_fini(struct rank *k);
/* Starts its process (state SPAWNING); born and ready are told to group.c. */
void rank_spawn(struct rank *k);
void rank_spawn_store(struct group *g);
/* Tinit: environment and process group; group_rank_ready() follows, or group_rank_died(). */
void rank_join(struct rank *k);
/* What torchrun would set for it: NAME=VALUE, NUL behind each. */
void rank_env(const struct rank *k, struct buf *env);
/* Its process is gone: nothing is sent there any more, and what it had promised fails.
 * group_rank_died() follows. */
void rank_gone(struct rank *k, const struct err *why);
/* Nquit, and SIGKILL. */
void rank_quit(struct rank *k);
/* Tells it the setting of that name. */
void rank_set_autogc(struct rank *k);
void rank_kill(struct rank *k);
void rank_signal(struct rank *k, int signo);
void rank_interrupt(struct rank *k, int cell);
/* Its collectives end with an error, and the process group is broken then. Only if it is known to
 * be in one, or always. */
void rank_abort(struct rank *k, bool always);
/* So does the one that it has been in for that long, if any. */
void rank_abort_stuck(struct rank *k, double seconds);
/* Messages about a slot that no call waits for (launch.c passes them on). */
void rank_notice(struct rank *k, struct msg *m);
void rank_store_notice(struct group *g, struct msg *m);
const char *rank_state_name(const struct rank *k);
void rank_set_table(struct rank *k, struct slice table);
void rank_set_state(struct rank *k, enum rank_state state);

#endif
