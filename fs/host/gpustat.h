/*
 * The GPUs of this host as NVML reports them: a separate thread asks, because a driver may take its
 * time. Knows no group: `words` are those of the verb `gpus`.
 */
#ifndef GPUSTAT_H
#define GPUSTAT_H
#include "host/gpus.h"

/* The thread begins to look; once, before any group is made. */
void gpustat_start(void);
void gpustat_stop(void);

/* What the daemon may choose from; *why: what is wrong with it (no 0: nothing). */
void gpustat_visible(struct gpus *out, struct err *why);
/* The GPUs that these words name. Waits for the thread's first list, if it is not there yet (some
 * 10 s at most): the daemon does that before it serves. */
int gpustat_choose(const char *words, struct gpus *out, struct err *e);
/* The same for words that were good before, as they are now: the list does not change. */
void gpustat_chosen(const char *words, struct gpus *out);
/* The environment of a rank, its number on the host, and how many ranks of `size` are there. */
void gpustat_env(const char *words, int rank, struct buf *env);
int gpustat_local_rank(const char *words, int rank);
int gpustat_local_size(const char *words, int size);

/* What a GPU did when it was looked at last; NULL: nobody has looked yet. */
const struct nvml_use *gpustat_seen(const struct nvml_gpu *gpu);
/* The last question was not answered in time: what was seen is from before. */
bool gpustat_is_late(void);
/* Is that good enough for a text that is made now? Also if the answer is overdue. */
bool gpustat_is_fresh(void);
/* Asks what all GPUs do. fn, which is set once, is called from the loop when that is known, or
 * overdue. */
void gpustat_ask(void);
void gpustat_on_answer(void (*fn)(void));

#endif
