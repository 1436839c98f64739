/* rankK/gpu: the memory of a rank's GPU, and its largest objects there. */
#ifndef RANK_GPU_FILE_H
#define RANK_GPU_FILE_H
#include "tree/tree.h"

extern const struct file_ops rank_gpu_file_ops;

#endif
