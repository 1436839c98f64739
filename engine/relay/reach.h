/* The far side of a direct connection (offer.h): makes it. */
#ifndef REACH_H
#define REACH_H
#include "relay/link.h"

/* A PACKET_OFFER has come: the link moves to the connection that is made, or says why there is
 * none (PACKET_REFUSAL). */
void reach_offered(struct loop *loop, struct link *l, struct slice offer);

#endif
