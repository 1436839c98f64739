/*
 * Reads ranges of an object in a rank's memory where only the rank itself can: on another host.
 * Who reads from beginning to end gets what comes next asked for ahead, as much as the link takes.
 */
#ifndef REMOTE_H
#define REMOTE_H
#include "base/req.h"
#include "host/agent.h"

struct remote;

/* An object of size bytes that the rank at this slot keeps under this handle. */
struct remote *remote_new(struct agent *a, int slot, uint32_t handle, uint64_t size);
/* Who waits for a range gets an answer all the same. NULL-safe. */
void remote_free(struct remote *o);
/* Answers a READ with n bytes from offset on, of the head and the object behind it. The head may go
 * when this returns. */
void remote_read(struct remote *o, struct req *r, struct slice head, uint64_t offset, size_t n);

#endif
