/*
 * The life cycle of a group: what start, stop and restart mean in each state, and what follows when
 * ranks and the store start, join and die. The table of states and events is in lifecycle.c.
 */
#ifndef LIFECYCLE_H
#define LIFECYCLE_H
#include "group/group.h"

struct task;

enum life_event {
	LIFE_START,   /* asked for by `start`, or by the first cell */
	LIFE_STOP,    /* asked for by `stop`, or by `idle` */
	LIFE_RESTART, /* asked for by `restart` */
	LIFE_FAILED,  /* a rank or the store could not start, or too often */
	LIFE_STARTED, /* a rank or the store runs */
	LIFE_JOINED,  /* a rank has joined the process group */
	LIFE_ENDED,   /* a process has ended */
	LIFE_EVENTS
};

/* The table as text, for README and manual page: a line for each pair. */
void lifecycle_print(struct buf *out);
/* new, starting, idle, busy, recovering, stopping, restarting, stopped. */
const char *lifecycle_state_name(const struct group *g);

/* Say what shall be; lifecycle_settled tells when it is. 0, or -errno with e. */
int lifecycle_start(struct group *g, struct err *e);
int lifecycle_stop(struct group *g, struct err *e);
int lifecycle_restart(struct group *g, struct err *e);
/* Could a cell be queued now? 0, or -ESRCH, -ENODEV, -EINVAL with the text. */
int lifecycle_accepts(const struct group *g, struct err *e);
/* Has the requested state been reached? */
bool lifecycle_settled(const struct group *g);
/* PARKED: r is answered when the requested state has been reached, with the errno if it cannot be:
 * -ECANCELED of a start (or a recovery) that somebody stops. */
int lifecycle_wait(struct group *g, struct req *r, bool for_start);
/* Perhaps nothing is to be done any more: the clock of `idle` starts anew. */
void lifecycle_rested(struct group *g);
/* The group is removed: its timers end, who waits gets ENODEV. */
void lifecycle_end(struct group *g);

/* Something has happened: does what the table says. 0, or -errno with e if it is refused. Of
 * LIFE_FAILED, e says why. */
int lifecycle_take(struct group *g, enum life_event event, struct err *e);
/* The group lacks a host, or has got one: who waits is told. */
void lifecycle_hosts_changed(struct group *g);
/* The process group works again. */
void lifecycle_recovered(struct group *g);

#endif
