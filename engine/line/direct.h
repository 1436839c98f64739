/*
 * A direct connection between the two ends of a line, beside a launcher with little bandwidth
 * (srun: a few MB/s). The near end listens for a while and announces this over the line, with two
 * tokens that are made for this offer; the far end connects and says one, and the near end answers
 * with the other. So each knows that the other one reads the line. That keeps out whoever can only
 * connect. Whoever can read or change what passes on the network is not kept out: neither the
 * tokens nor what follows them is encrypted.
 */
#ifndef DIRECT_H
#define DIRECT_H
#include "line/line.h"

enum { DIRECT_TOKEN = 16 }; /* bytes */

/* The line uses the connection, or (why->no) there will be none. */
typedef void direct_fn(const struct err *why);

/* At the near end: makes an offer, which replaces an older one; there is one per process. variable:
 * the environment variable at the far end that holds this host's address. */
void direct_offer(struct loop *loop, struct line *l, const char *variable, direct_fn *fn);
/* A LINE_REFUSAL has arrived. */
void direct_refused(struct slice text);
void direct_withdraw(void); /* ends the offer, if there is one; does not call fn */
/* At the far end: handles a LINE_OFFER. Connects, or says why it cannot (LINE_REFUSAL). */
void direct_reach(struct loop *loop, struct line *l, struct slice offer);

#endif
