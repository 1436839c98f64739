/*
 * The GPUs of this host as NVML reports them: a separate thread queries NVML, because a driver may
 * be slow to respond. Knows no groups: `words` are those of the verb `gpus`.
 */
#ifndef GPUSTAT_H
#define GPUSTAT_H
#include "host/gpus.h"

/* Starts the thread. Call once, before any group is created. */
void gpustat_start(void);
void gpustat_stop(void);

/* The GPUs that the daemon may choose from; *why: what is wrong with them (no 0: nothing). */
void gpustat_visible(struct gpus *out, struct err *why);
/* The GPUs that words name. Waits for the thread's first list if necessary, for at most about 10 s:
 * the daemon does that before it serves requests. */
int gpustat_choose(const char *words, struct gpus *out, struct err *e);
/* The same, for words that have already been accepted: the list does not change. */
void gpustat_chosen(const char *words, struct gpus *out);
/* Does each rank see only its own GPU, as device 0? */
bool gpustat_sees_one(const char *words);
/* A rank's environment, its LOCAL_RANK, and LOCAL_WORLD_SIZE in a group of `size` ranks (1 if each
 * sees only its own GPU). */
void gpustat_env(const char *words, int rank, struct buf *env);
int gpustat_local_rank(const char *words, int rank);
int gpustat_local_size(const char *words, int size);

/* What a GPU was doing when it was last queried; NULL: not queried yet. */
const struct nvml_use *gpustat_seen(const struct nvml_gpu *gpu);
/* The last query was not answered in time: the data is older. */
bool gpustat_is_late(void);
/* Is the data recent enough for a text generated now? Also true if the answer is overdue. */
bool gpustat_is_fresh(void);
/* Queries the activity of all GPUs. fn, which is set once, is called from the loop when the answer
 * has come or is overdue. */
void gpustat_ask(void);
bool gpustat_is_asked(void); /* has no answer come yet? */
void gpustat_on_answer(void (*fn)(void));

#endif
