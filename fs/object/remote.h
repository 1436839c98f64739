/* Reads ranges of an object in a rank's memory where only the rank itself can: on another host. */
#ifndef REMOTE_H
#define REMOTE_H
#include "base/req.h"
#include "host/agent.h"

/* What is read: an object that the rank at this slot keeps under this handle. */
struct remote {
	struct agent *agent;
	int slot;
	uint32_t handle;
};

/* Answers a READ with n bytes from offset on, of the head and the object behind it. The head may go
 * when this returns. */
void remote_read(
    const struct remote *o, struct req *r, struct slice head, uint64_t offset, size_t n);

#endif
