/*
 * Objects in ranks' memory, on the far side. The daemon cannot read a rank's memory on another
 * host: if it requests ranges of an object (GET_LIVE), it is directed to use Tread instead
 * (GET_READ); if it needs the whole object, for an OP, the bytes are fetched here and sent as a
 * blob.
 */
#ifndef FETCH_H
#define FETCH_H
#include "conn.h"
#include "relay/outbox.h"

struct fetches;

struct fetches *fetches_new(struct conn *agent, struct link *l, struct outbox *out);
/* A Tget is forwarded to the agent. */
void fetch_asked(struct fetches *fs, const struct msg *m);
/* An Ncancel is forwarded to the agent: the fetch for its Tget ends, and is answered with EINTR. */
void fetch_cancel(struct fetches *fs, const struct msg *m);
/* Handles a message from the agent. Returns true if it was consumed and must not be forwarded. */
bool fetch_answer(struct fetches *fs, const struct msg *m);
/* The engine at slot has exited. */
void fetch_ended(struct fetches *fs, unsigned slot);
/* Sends one piece. Returns false if there is none here. */
bool fetches_more(struct fetches *fs);

#endif
