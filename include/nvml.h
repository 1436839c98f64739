/*
 * NVML, NVIDIA's library that reports on GPUs, loaded on demand: which GPUs and MIG instances there
 * are, and what they are doing. It creates no CUDA context and does not decide which GPUs a group
 * uses. Calls may be slow (nvml_open takes about 100 ms), so event loops do not make them.
 */
#ifndef NVML_H
#define NVML_H
#include "err.h"

enum { NVML_TEXT = 96, NVML_WHOLE = -1 };

/* A compute device: a GPU, or a MIG instance of one. */
struct nvml_gpu {
	void *handle, *card;  /* NVML handles: of the device, and of its GPU */
	int index;	      /* of the GPU, as in nvidia-smi */
	int mig;	      /* number of the instance; NVML_WHOLE: the whole GPU */
	bool split;	      /* a whole GPU in MIG mode: only its instances can compute */
	char uuid[NVML_TEXT]; /* GPU-…, MIG-… */
	char name[NVML_TEXT];
};

/* A process that computes on the device, by the pid that NVML reports. Memory in bytes; UINT64_MAX:
 * unknown. */
struct nvml_process {
	uint32_t pid;
	uint64_t bytes;
};

/* What a device is doing now. */
struct nvml_use {
	bool has_memory;
	uint64_t used, total; /* bytes */
	int util, temp;	      /* in per cent; in °C; -1: unknown, also below */
	int milliwatts, mhz;  /* power draw; clock of the processors */
	struct nvml_process *process;
	int n;		 /* -1: unknown */
	char error[200]; /* the first call that failed, and why; "": none */
};

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
