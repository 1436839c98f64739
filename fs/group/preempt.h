/*
 * Tells cells that their hosts are about to be taken away (`on_preempt`): a signal that the cluster
 * sends, to the daemon or to an agent, becomes ddip.Preempted in every cell that runs.
 */
#ifndef PREEMPT_H
#define PREEMPT_H
#include "group/group.h"

/* The daemon's signals that groups may name come here from now on, but SIGTERM. */
void preempt_init(void);
/* This signal came to a host. True: groups have it as on_preempt, and their cells were told, unless
 * that was done a moment ago. */
bool preempt_signal(int signo, const char *host);
/* The cells of this group are told. signo 0, host "-": somebody asked for it. */
void preempt_cells(struct group *g, int signo, const char *host);

#endif
