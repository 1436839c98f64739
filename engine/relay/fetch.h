/*
 * Objects that are read from elsewhere, on the far side. The daemon can't look into a rank's memory
 * from another host: where it asks for ranges of an object (GET_LIVE) it is told to do so by Tread
 * (GET_READ); where it wants all of it, for an OP, the bytes are fetched here and go as a blob.
 */
#ifndef FETCH_H
#define FETCH_H
#include "conn.h"
#include "relay/outbox.h"

struct fetches;

struct fetches *fetches_new(struct conn *agent, struct link *l, struct outbox *out);
void fetches_free(struct fetches *fs); /* NULL-safe */
/* A Tget goes to the agent. */
void fetch_asked(struct fetches *fs, const struct msg *m);
/* An Ncancel goes to the agent: what is under way for that Tget ends, and is answered EINTR. */
void fetch_cancel(struct fetches *fs, const struct msg *m);
/* A message of the agent. True: it is taken, nothing of it is to be passed on. */
bool fetch_answer(struct fetches *fs, const struct msg *m);
/* The engine has ended. */
void fetch_ended(struct fetches *fs, unsigned slot);
/* Sends a piece; false: there is none here. */
bool fetches_more(struct fetches *fs);

#endif
