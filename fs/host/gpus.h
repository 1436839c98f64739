/*
 * Which GPUs a group uses: what `gpus all|3,1|UUID|none` means on a machine, how many ranks that
 * makes, and which environment shows each rank its own. Pure functions: gpustat.c provides the list
 * of all GPUs.
 */
#ifndef GPUS_H
#define GPUS_H
#include "nvml.h"

enum { GPUS_MAX = 256, GPUS_LABEL = 24 };

/* GPUs in an order that somebody wants. */
struct gpus {
	bool unknown; /* nobody can tell which there are: CUDA itself will see */
	bool none;    /* none are wanted, whatever there is */
	bool alone;   /* each rank sees its own one only: instances of GPUs, or GPUs named twice */
	bool crowded; /* several ranks on one card */
	int n;
	const struct nvml_gpu *gpu[GPUS_MAX]; /* of the list that they were chosen from */
};

/* What the daemon itself may use: all of the list, or what CUDA_VISIBLE_DEVICES leaves of it (NULL:
 * not set). As CUDA does it stops at the first word that names nothing; `why` then says so. */
void gpus_visible(
    const struct nvml_gpu *list, size_t n, const char *visible, struct gpus *out, struct err *why);
/* The GPUs that words (divided by commas or blanks) name, numbers counting within `from`. */
int gpus_choose(const struct gpus *from, const char *words, struct gpus *out, struct err *e);
/* Can so many ranks (0: as many as GPUs) run on them? 0 or -EINVAL. */
int gpus_check_size(const struct gpus *gpus, long size, const char *words, struct err *e);
/* How many ranks there are if nobody says a number: one for each, 2 without GPUs. */
int gpus_default_size(const struct gpus *gpus);
/* K=V, each ended by NUL, for a rank that touches no CUDA before it has them. */
void gpus_env(const struct gpus *gpus, int rank, struct buf *env);
/* The rank's number on its host for programs: that of its device, cuda:LOCAL_RANK. */
int gpus_local_rank(const struct gpus *gpus, int rank);
/* On a host whose list nobody here has, words are taken as they are. How many GPUs they name (0:
 * all or none), and is one named twice, so that each rank sees its own one only? */
int gpus_far_count(const char *words);
/* Can they name GPUs at all? 0 or -EINVAL. */
int gpus_far_check(const char *words, struct err *e);
bool gpus_far_repeated(const char *words);
/* K=V, each ended by NUL, for a rank of this number on its host, and among all. */
void gpus_far_env(const char *words, int local_rank, int rank, struct buf *env);
/* "3", or "3:1" for an instance. */
const char *gpus_label(const struct nvml_gpu *gpu, char label[GPUS_LABEL]);

#endif
