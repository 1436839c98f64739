/* Files that report on GPUs: G/gpus, and the files that show which GPUs the ranks use. */
#ifndef GPU_FILE_H
#define GPU_FILE_H
#include "base/record.h"
#include "tree/tree.h"

struct rank;

void gpu_file_start(void);
void gpu_file_stop(void); /* pending requests fail with ENODEV */
/* The rank's GPU: for `ranks`, and in full as lines ("gpu 3"). */
void gpu_file_rank_words(const struct rank *k, struct record *out);
void gpu_file_rank_lines(const struct rank *k, struct buf *out);
text_fn gpu_file_text; /* G/gpus */
/* For texts that show GPUs: open waits for a fresh answer from NVML, then generates the text. */
extern const struct file_ops gpu_file_ops;

#endif
