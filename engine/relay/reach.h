/* The far side of a direct connection (offer.h): connects to the near side. */
#ifndef REACH_H
#define REACH_H
#include "relay/link.h"

/* Handles a PACKET_OFFER: connects and moves the link, or says why it cannot (PACKET_REFUSAL). */
void reach_offered(struct loop *loop, struct link *l, struct slice offer);

#endif
