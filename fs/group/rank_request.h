/*
 * Requests to a rank's process: to start, to join, to stop what it does, to end. Without a process
 * they do nothing. The verbs of rankK/ctl are in tree/ctl.c.
 */
#ifndef RANK_REQUEST_H
#define RANK_REQUEST_H
#include "group/group.h"
#include "host/agent.h"

/* A process to be started at a slot of a host's agent; kind: ENGINE_RANK or ENGINE_STORE; env:
 * NAME=VALUE, NUL behind each. fn hears whether that went well. */
struct spawn {
	int kind, slot;
	const char *name;
	struct slice env;
	reply_fn *fn;
	void *arg;
};

void rank_spawn_process(struct group *g, struct host *h, const struct spawn *p);
/* Starts its process on its host, whose agent runs (state SPAWNING). What comes of it is told by
 * hooks.h. */
void rank_spawn(struct rank *k);
/* Has it join the process group: rank_ready follows, rank_join_failed, or rank_died. */
void rank_join(struct rank *k);
/* Has it join again, under a new generation: fn hears what comes of it, with the rank. */
void rank_rejoin(struct rank *k, reply_fn *fn);
/* What torchrun would set for it: NAME=VALUE, NUL behind each. */
void rank_env(const struct rank *k, struct buf *env);
/* Asks it to end; ends it by SIGKILL. */
void rank_quit(struct rank *k);
void rank_kill(struct rank *k);
/* Tells it the setting of that name. */
void rank_set_autogc(struct rank *k);
/* signo to its process group. */
void rank_signal(struct rank *k, int signo);
/* SIGINT for this cell or self-test if it runs. */
void rank_interrupt(struct rank *k, uint32_t number);
/* Nobody wants any more what this request is for: it is answered soon, with EINTR if it is not
 * done.
 */
void rank_cancel(struct rank *k, uint32_t tag);
/* ddip.Preempted in this cell. */
void rank_preempt(struct rank *k, uint32_t number);
/* Its collectives end with an error, and the process group is broken then. Only if it is known to
 * be in one, or always. */
void rank_abort(struct rank *k, bool always);
/* So does the one that it has been in for that long, if any. */
void rank_abort_stuck(struct rank *k, double seconds);

#endif
