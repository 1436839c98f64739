/*
 * Objects that ranks of this host keep for a daemon on another host (GET_READ), and reads of ranges
 * of them: from the rank's memory by a copy thread, from its GPU through memory that it shares with
 * the agent, or, if its memory cannot be read, by the rank itself.
 */
#ifndef OBJECTS_H
#define OBJECTS_H
#include "agent/agent.h"

struct object;
struct reading;

/* Called once, on the loop: with an Rread, which the callee may take over, or with NULL and an
 * error. */
typedef void reading_fn(void *arg, struct buf *frame, const struct err *e);

/* Reads end without a call; those that a thread is at end by themselves. */
void object_free(struct object *o);
struct engine *object_engine(const struct object *o);
uint32_t object_handle(const struct object *o);
uint64_t object_size(const struct object *o);
/* Reads n bytes that it has; of a GPU, not more than fit a slot. tag: of the request from the
 * daemon that they are for, and of the Rread. May call done before it returns. */
void object_read(
    struct object *o, uint64_t tag, uint64_t offset, size_t n, reading_fn *done, void *arg);

/* Sends Nfree to the object's rank. */
void object_unpin(const struct engine *e, uint32_t handle);
/* Fills e with the error for a request that was cancelled by Ncancel. */
void object_cancelled(struct err *e);

/* reads.c: Treads. reads_drop: all that are not answered, by this error. */
void reads_ask(struct object *o, const struct msg *m);
void reads_drop(struct object *o, const struct err *e);
/* The next large reply, a whole frame. Returns false if there is none. */
bool reads_next(struct buf *frame);

/* whole.c: Tgets whose object, which it takes over, is sent at once, through a pipe. m: the Rget.
 * whole_cancel returns false if there is no such Tget. */
void whole_begin(struct object *o, const struct msg *m);
bool whole_cancel(const struct engine *e, uint64_t tag);
void whole_ended(const struct engine *e);

#endif
