/*
 * Which GPUs a group uses: what `gpus all|3,1|UUID|none` means on a machine, how many ranks that
 * makes, and the environment that makes each rank's GPU visible to it. Pure functions:
 * host_gpus.c provides the list of all GPUs.
 */
#ifndef GPUS_H
#define GPUS_H
#include "nvml_gpu.h"

enum { GPUS_MAX = 256, GPUS_LABEL = 24 };

/* A selection of GPUs, in the requested order. */
struct gpus {
	bool unknown; /* the GPUs are not known: left to CUDA */
	bool none;    /* none are wanted, even if there are some */
	bool alone;   /* each rank sees only its own: MIG instances, or a GPU named twice */
	bool crowded; /* several ranks on one card */
	int n;
	const struct nvml_gpu *gpu[GPUS_MAX]; /* into the list that they were chosen from */
};

/* The GPUs that the daemon itself may use: the whole list, or what CUDA_VISIBLE_DEVICES leaves of
 * it (NULL: not set). Like CUDA, stops at the first word that names no GPU; `why` then says so. */
void gpus_visible(
    const struct nvml_gpu *list, size_t n, const char *visible, struct gpus *out, struct err *why);
/* The GPUs that words (separated by commas or blanks) name; numbers count within `from`. */
int gpus_choose(const struct gpus *from, const char *words, struct gpus *out, struct err *e);
/* Can `size` ranks (0: as many as GPUs) run on these GPUs? Returns 0 or -EINVAL. */
int gpus_check_size(const struct gpus *gpus, long size, const char *words, struct err *e);
/* The default number of ranks: one per GPU, or 2 without GPUs. */
int gpus_default_size(const struct gpus *gpus);
/* The same for a host whose list of GPUs is not known here: `out` has the words as they are, in
 * *list, which the caller frees; n is 0 for all and none. Returns 0, or -EINVAL with *e set. */
int gpus_unlisted(const char *words, struct nvml_gpu **list, struct gpus *out, struct err *e);
/* Appends K=V entries, each ended by NUL, for the rank with this number among all, and this one on
 * its host. The rank must not touch CUDA before they are set. */
void gpus_env(const struct gpus *gpus, int local_rank, int rank, struct buf *env);
/* "3", or "3:1" for a MIG instance. */
const char *gpus_label(const struct nvml_gpu *gpu, char label[GPUS_LABEL]);

#endif
