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

/* Called once, on the loop: with an Rread or Nblob, which the callee may take over, or with NULL
 * and an error. */
typedef void reading_fn(void *arg, struct buf *frame, const struct err *e);

/* Reads end without a call; those that a thread is at end by themselves. */
void object_free(struct object *o);
struct engine *object_engine(const struct object *o);
uint32_t object_handle(const struct object *o);
uint64_t object_size(const struct object *o);
/* A file's first n bytes, which no rank keeps. Takes over fd. */
struct object *object_in_file(struct engine *e, int fd, uint64_t n);
/* Reads n bytes that it has; of a GPU, not more than fit a slot. tag: of the request from the
 * daemon that they are for, and of the Rread. blob: that they are a part of, if not 0: then a rank
 * that is asked may give other than n bytes. May call done before it returns. */
void object_read(struct object *o, uint64_t tag, uint32_t blob, uint64_t offset, size_t n,
    reading_fn *done, void *arg);

/* Sends Nfree to the object's rank. */
void object_unpin(const struct engine *e, uint32_t handle);

/* reads.c: Treads. reads_drop: all that are not answered, by this error. */
void reads_ask(struct object *o, const struct msg *m);
void reads_drop(struct object *o, const struct err *e);
/* Sends an object, which it takes over, as a blob, and then the Rget that answers the Tget with
 * this tag. size: with the head. */
void reads_whole(struct object *o, uint64_t tag, uint64_t size, struct slice head);
/* The answer to the Tget with this tag, which is under way, is an error. Returns false if none
 * is. */
bool reads_cancel(const struct engine *e, uint64_t tag);
/* Nothing more is sent of whole objects of this engine, which has exited. */
void reads_ended(const struct engine *e);

#endif
