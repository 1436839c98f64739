/* One rank and its process: spawning, joining, its notices, its end. hooks.h says who hears of it.
 */
#ifndef RANK_H
#define RANK_H
#include "group/group.h"
#include "host/agent.h"

void rank_init(struct rank *k, struct group *g, int number);
void rank_fini(struct rank *k);
/* Starts its process (state SPAWNING). What comes of it is told by hooks.h. */
void rank_spawn(struct rank *k);
/* The store: is one wanted, by the setting `backend`? Its process: started, asked to end, killed.
 */
bool rank_store_wanted(const struct group *g);
void rank_spawn_store(struct group *g);
void rank_quit_store(struct group *g);
void rank_kill_store(struct group *g);
/* The number of the zygote that the settings want, asked for if need be; the group's old one is given
 * up. */
uint32_t rank_zygote(struct group *g);
/* A phase of the start, for `status`. */
void rank_phase(struct group *g, const char *name, double ms);
/* Its process has ended; how: text. */
void rank_set_dead(struct rank *k, const char *how);
/* Has it join the process group: rank_ready follows, rank_join_failed, or rank_died. */
void rank_join(struct rank *k);
/* What torchrun would set for it: NAME=VALUE, NUL behind each. */
void rank_env(const struct rank *k, struct buf *env);
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
const char *rank_state_name(struct rank *k);
/* Its variables, as it reports them. */
void rank_set_table(struct rank *k, struct slice text);
void rank_set_state(struct rank *k, enum rank_state state);

#endif
