/*
 * A communicator of the engine's own with what it needs to work: a stream, and host memory that is
 * registered with CUDA. For one thread, whose device is the link's; only nccl_link_cancel() may be
 * called by others. Errors are those of nccl.h and cuda.h, EINTR: cancelled, and ETIMEDOUT.
 */
#ifndef NCCL_LINK_H
#define NCCL_LINK_H
#include "rank/nccl.h"
#include <stdatomic.h>

enum { NCCL_STAGING = 1 << 20 }; /* bytes of host memory */

struct nccl_link {
	struct ncclComm *comm; /* NULL: it is closed */
	struct CUstream_st *stream;
	int rank, ranks;
	char *staging; /* kept over opening and closing */
	int limit_ms;  /* that a wait may take, or it ends with ETIMEDOUT; 0: for ever */
	atomic_bool cancelled;
};

/* Meets the other ranks: waits until all are there. After a failure it is closed. */
int nccl_link_open(struct nccl_link *l, const char id[NCCL_ID_SIZE], int rank, int ranks,
    int device, struct err *e);
/* Closes it when nothing is under way any more on any rank; after a failure, too. All ranks do. */
int nccl_link_leave(struct nccl_link *l, struct err *e);
/* Aborts what is under way, whatever the other ranks do. */
void nccl_link_close(struct nccl_link *l);
/* The next wait, or that under way, ends with EINTR. */
void nccl_link_cancel(struct nccl_link *l);
/* Waits until what was begun has been put into the stream; until the stream has done all. */
int nccl_link_settle(struct nccl_link *l, struct err *e);
int nccl_link_finish(struct nccl_link *l, struct err *e);

#endif
