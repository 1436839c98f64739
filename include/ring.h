/*
 * Memory that a rank shares with a reader on its host: the rank copies the requested ranges of its
 * objects on GPUs into it (Tcopy).
 */
#ifndef RING_H
#define RING_H
#include "loop.h"
#include "source.h"

struct ring_place;

/* The rank at a slot of an agent. */
struct ring_rank {
	void *agent; /* whatever stands for it */
	unsigned slot;
	/* Has the rank copy x, of the object with this handle, to this offset of the memory; then
	 * p has its bytes: ring_copied(). Returns 0, or -errno with *e set. */
	int (*ask)(const struct ring_rank *rank, uint32_t handle, const struct range *x,
	    struct ring_place *p, uint64_t to, struct err *e);
};

/* Provides an object that this rank keeps under handle, on the GPU that it numbers gpu. fd is what
 * the rank sent with it. NULL with *e set. */
struct provider *ring_provider(struct loop *l, const struct ring_rank *rank, uint32_t handle,
    unsigned gpu, int fd, struct err *e);
/* The rank has copied what was requested; with e it has failed. */
void ring_copied(struct ring_place *p, const struct err *e);

#endif
