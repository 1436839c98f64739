/*
 * The life cycle of a group: what start, stop and restart do in each state, and what happens when
 * ranks and the store start, join and die. The table of states and events is in lifecycle.c.
 */
#ifndef LIFECYCLE_H
#define LIFECYCLE_H
#include "group/group.h"

struct task;

enum life_event {
	LIFE_START,   /* requested by `start`, or by the first cell */
	LIFE_STOP,    /* requested by `stop`, or by `idle` */
	LIFE_RESTART, /* requested by `restart` */
	LIFE_FAILED,  /* a rank or the store could not start, or died too often */
	LIFE_STARTED, /* a rank or the store is running */
	LIFE_JOINED,  /* a rank has joined the process group */
	LIFE_ENDED,   /* a process has ended */
	LIFE_EVENTS
};

/* Prints the table for the README and the manual page: a line for each state and event. */
void lifecycle_print(struct buf *out);
/* new, starting, idle, busy, recovering, lacking, stopping, restarting or stopped. */
const char *lifecycle_state_name(const struct group *g);

/* Request a state without waiting for it. Return 0, or -errno with *e set. */
int lifecycle_start(struct group *g, struct err *e);
int lifecycle_stop(struct group *g, struct err *e);
int lifecycle_restart(struct group *g, struct err *e);
/* Can a cell be queued now? Returns 0, or -ESRCH, -ENODEV, -EHOSTDOWN or -EINVAL with *e set. */
int lifecycle_accepts(const struct group *g, struct err *e);
/* Has the requested state been reached, or turned out to be out of reach? */
bool lifecycle_settled(const struct group *g);
/* Parks r until the requested state has been reached. Returns PARKED, or the result if it has been
 * reached already: 0, or -errno if it cannot be reached (-ECANCELED for a start or a recovery that
 * is stopped). */
int lifecycle_wait(struct group *g, struct req *r, bool for_start);
/* The group is being removed: cancels its timers and answers its waiters with ENODEV. */
void lifecycle_end(struct group *g);

/* Handles an event as the table says. Returns 0, or -errno with *e set if it is refused. For
 * LIFE_FAILED, *e is the reason on entry. */
int lifecycle_take(struct group *g, enum life_event event, struct err *e);
/* The group has begun to lack a host, or lacks none any longer: answers its waiters. */
void lifecycle_hosts_changed(struct group *g);

#endif
