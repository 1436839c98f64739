/*
 * Equal messages of, or to, several engines that are sent in one round of the loop: they become one
 * (Nmany). Nothing waits for others that may come: who sends ends the round.
 */
#ifndef GATHER_H
#define GATHER_H
#include "loop.h"
#include "wire.h"

struct gather;

/* Sends whole frames. */
typedef void gather_fn(void *arg, struct slice frames);

struct gather *gather_new(struct loop *l, gather_fn *send, void *arg);
void gather_free(struct gather *g); /* NULL-safe; what was taken is dropped */
/* May messages of this type be gathered? */
bool gather_takes(int type);
/* Takes m, and sends it at the end of the round. False: it is to be sent by itself; all that was
 * taken is sent now. So what an engine says, or is told, keeps its order. */
bool gather_take(struct gather *g, const struct msg *m);
/* Sends what was taken. NULL-safe. */
void gather_flush(struct gather *g);

#endif
