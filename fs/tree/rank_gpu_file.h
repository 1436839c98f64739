/* rankK/gpu: memory usage of a rank's GPU, and the largest objects in it. */
#ifndef RANK_GPU_FILE_H
#define RANK_GPU_FILE_H
#include "tree/tree.h"

extern const struct file_ops rank_gpu_file_ops;

#endif
