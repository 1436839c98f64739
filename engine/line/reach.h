/* The far side of a direct connection (offer.h): connects to the near side. */
#ifndef REACH_H
#define REACH_H
#include "line/link.h"

/* Handles a LINE_OFFER: connects and moves the link, or says why it cannot (LINE_REFUSAL). */
void reach_offered(struct loop *loop, struct link *l, struct slice offer);

#endif
