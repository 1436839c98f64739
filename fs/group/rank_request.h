/*
 * Requests to a rank's process: to start, to join, to stop what it does, to end. Without a process
 * they do nothing. The verbs of rankK/ctl are in tree/ctl.c.
 */
#ifndef RANK_REQUEST_H
#define RANK_REQUEST_H
#include "group/group.h"
#include "host/agent.h"

/* The number of the zygote that the settings want, asked for if need be; the group's old one is
 * given up. */
uint32_t rank_zygote(struct group *g);
/* Starts a process of a group at a slot; kind: ENGINE_RANK (arg: the rank) or ENGINE_STORE. fn
 * hears whether that went well. */
void rank_spawn_process(
    struct group *g, int kind, int slot, const char *name, reply_fn *fn, void *arg);
/* Starts its process (state SPAWNING). What comes of it is told by hooks.h. */
void rank_spawn(struct rank *k);
/* Has it join the process group: rank_ready follows, rank_join_failed, or rank_died. */
void rank_join(struct rank *k);
/* What torchrun would set for it: NAME=VALUE, NUL behind each. */
void rank_env(const struct rank *k, struct buf *env);
/* Asks it to end; ends it by SIGKILL. */
void rank_quit(struct rank *k);
void rank_kill(struct rank *k);
/* Tells it the setting of that name. */
void rank_set_autogc(struct rank *k);
/* signo to its process group. */
void rank_signal(struct rank *k, int signo);
/* SIGINT for this cell or self-test if it runs, else for none; 0: for whatever runs. */
void rank_interrupt(struct rank *k, uint32_t number);
/* Its collectives end with an error, and the process group is broken then. Only if it is known to
 * be in one, or always. */
void rank_abort(struct rank *k, bool always);
/* So does the one that it has been in for that long, if any. */
void rank_abort_stuck(struct rank *k, double seconds);

#endif
