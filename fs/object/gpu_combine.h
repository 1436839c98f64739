/*
 * Combines parts where they are, each on a GPU of its own: the ranks do it by NCCL, between cells,
 * and rank 0 writes what comes out. Knows no files.
 */
#ifndef GPU_COMBINE_H
#define GPU_COMBINE_H
#include "host/agent.h"
#include "reduce.h"

struct gpu_combine;

/* What an engine keeps for us under a handle. */
struct gpu_part {
	struct agent *agent;
	int slot;
	uint32_t handle;
};

/* Called once, maybe before gpu_combine_start() returns: the result is there, or (e->no) is not.
 * After that there is no gpu_combine any more. */
typedef void gpu_combine_fn(void *arg, const struct err *e);

/* Does what this reduction is to do; its result is to be there, and it lives until the end. NULL:
 * it is not one of numbers. */
struct gpu_combine *gpu_combine_new(
    const struct gpu_part *parts, int n, const struct reduction *r, gpu_combine_fn *fn, void *arg);
void gpu_combine_start(struct gpu_combine *c);
/* It ends soon; the function is still called. */
void gpu_combine_cancel(struct gpu_combine *c);

#endif
