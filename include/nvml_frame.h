/* What NVML says on one host, as bytes for another: the list of GPUs and what they do. */
#ifndef NVML_FRAME_H
#define NVML_FRAME_H
#include "nvml.h"

/* What a host says of its GPUs. */
struct nvml_host {
	struct nvml_gpu *list; /* without NVML's handles; `card` tells only which are of one GPU */
	struct nvml_use *use;  /* one for each */
	size_t n;
	char *visible;	/* CUDA_VISIBLE_DEVICES there; NULL: not set */
	struct err why; /* there is no NVML, or it does not work */
};

/* Asks NVML, which may take long, and appends the bytes. */
void nvml_frame_make(struct buf *out);
/* Reads them; -EBADMSG: they are none. */
int nvml_frame_read(struct slice bytes, struct nvml_host *out, struct err *e);
void nvml_host_free(struct nvml_host *h);

#endif
