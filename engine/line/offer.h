/*
 * The near side of a direct connection, which two relays use in addition to a launcher with little
 * bandwidth (srun: a few MB/s). It listens for a while and announces this over the link, with two
 * tokens that are made for this offer: the far side says one, and this side answers with the other.
 * So each knows that the other one reads the link. That keeps out whoever can only connect. Whoever
 * can read or change what passes on the network is not kept out: neither the tokens nor what
 * follows them is encrypted.
 */
#ifndef OFFER_H
#define OFFER_H
#include "line/link.h"

enum { OFFER_TOKEN = 16 }; /* bytes */

struct offer_tokens {
	unsigned char far[OFFER_TOKEN], near[OFFER_TOKEN]; /* by who says it */
};

/* The link has moved to the connection, or (why->no) there will be none. */
typedef void offer_fn(const struct err *why);

/* Makes an offer, which replaces an older one; there is one per process. variable: the environment
 * variable on the far side that holds this host's address. */
void offer_make(struct loop *loop, struct link *l, const char *variable, offer_fn *fn);
/* A LINE_REFUSAL has arrived. */
void offer_refused(struct slice text);
void offer_end(void); /* withdraws the offer, if there is one; does not call fn */

#endif
