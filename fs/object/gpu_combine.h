/*
 * Combines parts that are each on a GPU of their own, without moving them: the ranks do it with
 * NCCL, between cells, and rank 0 writes the result. Knows no files.
 */
#ifndef GPU_COMBINE_H
#define GPU_COMBINE_H
#include "host/agent.h"
#include "reduce.h"

struct gpu_combine;

/* What an engine keeps for the daemon under a handle. */
struct gpu_part {
	struct agent *agent;
	int slot;
	uint32_t handle;
};

/* Called once, possibly before gpu_combine_start() returns: the result is complete, or e->no is
 * set. The gpu_combine no longer exists by then. */
typedef void gpu_combine_fn(void *arg, const struct err *e);

/* Prepares to carry out the reduction r, into its result; r must outlive it. NULL: r is not
 * arithmetic on numbers. */
struct gpu_combine *gpu_combine_new(
    const struct gpu_part *parts, int n, const struct reduction *r, gpu_combine_fn *fn, void *arg);
void gpu_combine_start(struct gpu_combine *c);
/* Ends it soon; fn is still called. */
void gpu_combine_cancel(struct gpu_combine *c);

#endif
