/*
 * The near side of a direct connection, which two relays have beside a launcher that carries little
 * (srun: a few MB/s). It listens for a while and says so by the link, with a secret: that is what
 * the connection that it waits for has to know (proof.h). What goes by it then is not encrypted.
 */
#ifndef OFFER_H
#define OFFER_H
#include "relay/link.h"

/* The link has moved to the connection, or (why->no) there will be none. */
typedef void offer_fn(const struct err *why);

/* Makes an offer, in the place of an older one; there is one per process. variable: of the
 * environment over there, has this host's address. */
void offer_make(struct loop *loop, struct link *l, const char *variable, offer_fn *fn);
/* A PACKET_REFUSAL has come. */
void offer_refused(struct slice text);
void offer_end(void); /* nobody waits any more, if anybody did */

#endif
