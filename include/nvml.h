/*
 * NVML, NVIDIA's library that reports on GPUs, loaded on demand: which GPUs and MIG instances there
 * are, and what they are doing. It makes no CUDA context and does not decide which GPUs a group
 * uses. Calls may take long (nvml_open about 100 ms), so no event loop makes them.
 */
#ifndef NVML_H
#define NVML_H
#include "err.h"

enum { NVML_TEXT = 96, NVML_WHOLE = -1 };

/* What computes: a GPU, or a MIG instance of one. */
struct nvml_gpu {
	void *handle, *card;  /* NVML's: its own, and that of the GPU that it is (part of) */
	int index;	      /* of the GPU, as nvidia-smi counts */
	int mig;	      /* which instance of it; NVML_WHOLE: all of it */
	bool split;	      /* a whole GPU in MIG mode: only its instances compute */
	char uuid[NVML_TEXT]; /* GPU-…, MIG-… */
	char name[NVML_TEXT];
};

/* A process that computes there, by NVML's number; memory in bytes, UINT64_MAX: not told. */
struct nvml_process {
	uint32_t pid;
	uint64_t bytes;
};

/* What it is doing now. */
struct nvml_use {
	bool has_memory;
	uint64_t used, total; /* bytes */
	int util, temp;	      /* per cent, °C; -1: not told, here and below */
	int milliwatts, mhz;  /* that it draws; of its processors */
	struct nvml_process *process;
	int n;		 /* -1: not told */
	char error[200]; /* the first call that failed, and why; "": none */
};

/* Loads the library ($DDIP_NVML, else libnvidia-ml.so.1) and starts it. A call of this and all
 * below from one thread at a time. -ENOENT: there is none; else why it does not work. */
int nvml_open(struct err *e);
void nvml_close(void);
/* All GPUs by their index, each followed by its MIG instances; *list is the caller's to free.
 * A device that can't be asked is left out, with a line in ddipfs.log. */
int nvml_list(struct nvml_gpu **list, size_t *n, struct err *e);
/* Never fails: what can't be told is marked so. u->process is the caller's to free. */
void nvml_use(const struct nvml_gpu *gpu, struct nvml_use *u);

#endif
