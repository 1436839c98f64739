/*
 * NVML, loaded on demand. It creates no CUDA context and does not decide which GPUs a group uses.
 * Calls may be slow (nvml_open takes about 100 ms), so the agent does not make them.
 */
#ifndef NVML_H
#define NVML_H
#include "nvml_gpu.h"

/* Loads the library ($DDIP_NVML, else libnvidia-ml.so.1) and initializes it. Call this and all
 * functions below from one thread at a time. Returns 0, -ENOENT if there is no library, or another
 * -errno if it does not work. */
int nvml_open(struct err *e);
void nvml_close(void);
/* Lists all GPUs by index, each followed by its MIG instances. The caller frees *list. A device
 * that cannot be queried is left out, with a line in ddipfs.log. */
int nvml_list(struct nvml_gpu **list, size_t *n, struct err *e);
/* Never fails: values that cannot be read are marked as unknown. The caller frees u->process. */
void nvml_use(const struct nvml_gpu *gpu, struct nvml_use *u);

#endif
