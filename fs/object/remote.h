/*
 * Reads ranges of an object in a rank's memory that only the rank itself can read: on another host.
 * Sequential reads are read ahead, by as much as the link can carry.
 */
#ifndef REMOTE_H
#define REMOTE_H
#include "host/agent.h"
#include "source.h"

/* Provides an object of size bytes that the rank at this slot keeps under this handle. */
struct provider *remote_provider(struct agent *a, int slot, uint32_t handle, uint64_t size);

#endif
