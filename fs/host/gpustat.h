/* The GPUs of this host as NVML tells of them: asked by a thread of its own, since a driver may
 * take its time. */
#ifndef GPUSTAT_H
#define GPUSTAT_H
#include "host/gpus.h"
#include "tree/tree.h"

struct group;
struct rank;

/* The thread begins to look; once, before any group is made. */
void gpustat_start(void);
void gpustat_stop(void);

/* The GPUs that these words of the verb `gpus` name. Waits for the thread's first list, if it is
 * not there yet (some 10 s at most): the daemon does that before it serves. */
int gpustat_choose(const char *words, struct gpus *out, struct err *e);
/* The environment of a rank, and its number on the host. */
void gpustat_env(const struct group *g, int rank, struct buf *env);
int gpustat_local_rank(const struct group *g, int rank);
int gpustat_local_size(const struct group *g);

/* " gpu=3", then what is known of it; "gpu 3" lines. */
void gpustat_rank_words(const struct rank *k, struct buf *out);
void gpustat_rank_lines(const struct rank *k, struct buf *out);
text_fn gpustat_text; /* G/gpus */
/* Of texts that tell of GPUs: open waits until NVML was asked again, and makes the text then. */
extern const struct file_ops gpustat_ops;

#endif
