/*
 * Reads of an object's bytes that are on a GPU: its rank copies the requested range into memory
 * shared with the daemon, which sends the reply from there. Knows no files.
 */
#ifndef DEVICE_H
#define DEVICE_H
#include "base/req.h"
#include "host/agent.h"

struct device;

/* For the object that this engine keeps under handle, on the GPU that it numbers gpu. fd is what
 * the engine sent; takes ownership of it. NULL with e. */
struct device *device_new(
    struct agent *a, int slot, uint32_t handle, unsigned gpu, int fd, struct err *e);
/* All its reads must have been answered, as they are when a file is closed. NULL-safe. */
void device_free(struct device *d);
/* Answers a READ with up to n bytes from offset on, where the head comes first and the object
 * follows it. Does not block. */
void device_read(struct device *d, struct req *r, struct slice head, uint64_t offset, size_t n);

#endif
