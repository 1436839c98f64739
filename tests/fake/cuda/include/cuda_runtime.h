/* nccl.h includes this and the headers of small floats, for nvcc only. */
#include <cuda_runtime_api.h>
