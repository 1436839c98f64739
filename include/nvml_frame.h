/* What NVML reports on one host, serialized for another: the list of GPUs and what they are
 * doing. */
#ifndef NVML_FRAME_H
#define NVML_FRAME_H
#include "nvml.h"

/* What a host reports about its GPUs. */
struct nvml_host {
	struct nvml_gpu *list; /* no NVML handles; devices of one GPU have equal `card` */
	struct nvml_use *use;  /* one per device */
	size_t n;
	char *visible;	/* CUDA_VISIBLE_DEVICES there; NULL: not set */
	struct err why; /* NVML is missing or does not work */
};

/* Queries NVML, which may be slow, and appends the serialized result. */
void nvml_frame_make(struct buf *out);
/* Parses such bytes. Returns 0, or -EBADMSG with *e set if they are malformed. */
int nvml_frame_read(struct slice bytes, struct nvml_host *out, struct err *e);
void nvml_host_free(struct nvml_host *h);

#endif
