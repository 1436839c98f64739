/* Files that report on GPUs: G/gpus, and the files that show what ranks use. */
#ifndef GPU_FILE_H
#define GPU_FILE_H
#include "tree/tree.h"

struct rank;

void gpu_file_start(void);
void gpu_file_stop(void); /* who waits is answered ENODEV */
/* " gpu=3", then what is known of it; "gpu 3" lines. */
void gpu_file_rank_words(const struct rank *k, struct buf *out);
void gpu_file_rank_lines(const struct rank *k, struct buf *out);
text_fn gpu_file_text; /* G/gpus */
/* Of texts that tell of GPUs: open waits until NVML was asked again, and makes the text then. */
extern const struct file_ops gpu_file_ops;

#endif
