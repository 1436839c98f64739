/*
 * The near side of a direct connection, which two relays use in addition to a launcher with little
 * bandwidth (srun: a few MB/s). It listens for a while and announces this over the link, with a
 * secret that the connecting side must know (proof.h). What goes over the connection is not
 * encrypted.
 */
#ifndef OFFER_H
#define OFFER_H
#include "relay/link.h"

/* The link has moved to the connection, or (why->no) there will be none. */
typedef void offer_fn(const struct err *why);

/* Makes an offer, which replaces an older one; there is one per process. variable: the environment
 * variable on the far side that holds this host's address. */
void offer_make(struct loop *loop, struct link *l, const char *variable, offer_fn *fn);
/* A PACKET_REFUSAL has arrived. */
void offer_refused(struct slice text);
void offer_end(void); /* withdraws the offer, if there is one; does not call fn */

#endif
