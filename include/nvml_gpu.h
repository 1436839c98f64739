/* What NVML, NVIDIA's library that reports on GPUs, says of a host: which GPUs and MIG instances
 * there are, and what they are doing. */
#ifndef NVML_GPU_H
#define NVML_GPU_H
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

#endif
