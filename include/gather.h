/*
 * Combines equal messages to or from several engines, sent in one round of the loop, into one
 * (Nmany). No message waits for others that might follow: all are sent at the end of the sender's
 * round.
 */
#ifndef GATHER_H
#define GATHER_H
#include "loop.h"
#include "wire.h"

struct gather;

/* Sends whole frames. */
typedef void gather_fn(void *arg, struct slice frames);

struct gather *gather_new(struct loop *l, gather_fn *send, void *arg);
void gather_free(struct gather *g); /* NULL-safe; drops messages not yet sent */
/* Takes m, to be sent at the end of the round. Returns false if the caller must send m by itself;
 * the messages taken before have then been sent. So each engine's messages stay in order. */
bool gather_take(struct gather *g, const struct msg *m);
/* Sends the messages taken so far. NULL-safe. */
void gather_flush(struct gather *g);

#endif
