/*
 * Reads ranges of an object in a rank's memory that only the rank itself can read: on another host.
 * Sequential reads are read ahead, by as much as the link can carry.
 */
#ifndef REMOTE_H
#define REMOTE_H
#include "base/req.h"
#include "host/agent.h"

struct remote;

/* An object of size bytes that the rank at this slot keeps under this handle. */
struct remote *remote_new(struct agent *a, int slot, uint32_t handle, uint64_t size);
/* Pending READs are answered with ECANCELED. NULL-safe. */
void remote_free(struct remote *o);
/* Answers a READ with n bytes from offset on, where the head comes first and the object follows it.
 * Copies what it needs of the head before it returns. */
void remote_read(struct remote *o, struct req *r, struct slice head, uint64_t offset, size_t n);

#endif
