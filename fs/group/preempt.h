/*
 * Preemption (`on_preempt`): when the cluster signals the daemon or an agent that it is about to
 * take a host away, every running cell gets ddip.Preempted, after a save where one is asked for.
 */
#ifndef PREEMPT_H
#define PREEMPT_H
#include "group/group.h"

/* Starts handling the daemon's signals that groups may name, except SIGTERM. */
void preempt_init(void);
/* This signal arrived on a host. The cells of groups whose on_preempt it is have then been
 * preempted, unless a signal did so a short while ago. Returns true if any of these is busy. */
bool preempt_signal(int signo, const char *host);
/* Preempts the running cells of this group. signo 0 and host "-": a user asked for it. */
void preempt_cells(struct group *g, int signo, const char *host);

#endif
