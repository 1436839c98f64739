/*
 * Requests to a rank's process: to start, join, stop its work, or end. The notices (set_autogc and
 * quit to abort_stuck) do nothing if there is no process. The verbs of rankK/ctl are in tree/ctl.c.
 */
#ifndef RANK_REQUEST_H
#define RANK_REQUEST_H
#include "group/group.h"
#include "host/agent.h"

/* A process to start in a slot of a host's agent. kind: ENGINE_RANK or ENGINE_STORE. env:
 * NAME=VALUE entries, each terminated by NUL. Calls fn with the outcome. */
struct spawn {
	int kind, slot;
	const char *name;
	struct slice env;
	reply_fn *fn;
	void *arg;
};

void rank_spawn_process(struct group *g, struct host *h, const struct spawn *p);
/* Starts the rank's process on its host, whose agent must be running (state SPAWNING). The outcome
 * is reported through hooks.h. */
void rank_spawn(struct rank *k);
/* Makes the rank join the process group. rank_ready, rank_join_failed or rank_died follows. */
void rank_join(struct rank *k);
/* Makes the rank join again under a new generation. whole: all ranks are the processes that they
 * were before. Calls fn with the rank and the outcome. */
void rank_rejoin(struct rank *k, bool whole, reply_fn *fn);
/* Appends what torchrun would set for the rank: NAME=VALUE entries, each terminated by NUL. */
void rank_env(const struct rank *k, struct buf *env);
/* Ask the process to end; kill it and its children with SIGKILL. */
void rank_quit(struct rank *k);
void rank_kill(struct rank *k);
/* Sends the process the settings `autogc`, `clock`. */
void rank_set_autogc(struct rank *k);
void rank_set_clock(struct rank *k);
/* Sends signo to the rank's process. */
void rank_signal(struct rank *k, int signo);
/* Sends SIGINT if this cell or self-test is running. */
void rank_interrupt(struct rank *k, uint32_t number, enum interrupt_why why);
/* The result of this request is no longer wanted: the rank replies soon, with EINTR if the request
 * has not been carried out. */
void rank_cancel(struct rank *k, uint64_t tag);
/* Ends the rank's collectives with an error, which breaks the process group: always, or only if the
 * rank is known to be in one. */
void rank_abort(struct rank *k, bool always);
/* The same if the rank is known to be in one; otherwise ends those of NCCL alone. */
void rank_abort_nccl(struct rank *k);
/* Closes the connections of its process group: the rank's program has ended. */
void rank_disconnect(struct rank *k);
/* As rank_abort(), if the rank has been in one collective for at least that long. */
void rank_abort_stuck(struct rank *k, double seconds);

#endif
