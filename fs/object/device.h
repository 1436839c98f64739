/*
 * Bytes of an object that lie on a GPU: its rank copies what is asked for into memory that it
 * shares with the daemon, where the reply is sent from. Knows no files.
 */
#ifndef DEVICE_H
#define DEVICE_H
#include "base/req.h"
#include "host/agent.h"

struct device;

/* Of the object that this engine keeps under this handle, on this GPU of its own numbers; it sent
 * the descriptor, which is taken. NULL with e. */
struct device *device_new(
    struct agent *a, int slot, uint32_t handle, unsigned gpu, int fd, struct err *e);
/* No read of it is answered after this: all have been, by who closes a file. NULL-safe. */
void device_free(struct device *d);
/* Answers a READ with the bytes from offset on, of the head and what follows it. Never waits. */
void device_read(struct device *d, struct req *r, struct slice head, uint64_t offset, size_t n);

#endif
