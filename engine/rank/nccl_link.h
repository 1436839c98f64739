/*
 * The engine's own communicator with the resources that it needs: a stream, and host memory that is
 * registered with CUDA. A link belongs to one thread, whose current device it uses; only
 * nccl_link_cancel() may be called from other threads. Errors are those of nccl.h and cuda.h, EINTR
 * if cancelled, and ETIMEDOUT.
 */
#ifndef NCCL_LINK_H
#define NCCL_LINK_H
#include "rank/nccl.h"
#include <stdatomic.h>

enum { NCCL_STAGING = 1 << 20 }; /* bytes of host memory */

struct nccl_link {
	struct ncclComm *comm; /* NULL: the link is closed */
	struct CUstream_st *stream;
	int rank, ranks;
	char *staging; /* kept when the link is closed */
	int limit_ms;  /* timeout of each wait (ETIMEDOUT); 0: none */
	atomic_bool cancelled;
};

/* Connects to the other ranks: waits until all have joined. A failure closes the link. */
int nccl_link_open(struct nccl_link *l, const char id[NCCL_ID_SIZE], int rank, int ranks,
    int device, struct err *e);
/* Closes the link once nothing is in flight on any rank, and also after a failure. All ranks must
 * call it. */
int nccl_link_leave(struct nccl_link *l, struct err *e);
/* Aborts what is in flight and closes the link, whatever the other ranks do. */
void nccl_link_close(struct nccl_link *l);
/* Makes the wait in progress, or else the next one, fail with EINTR. */
void nccl_link_cancel(struct nccl_link *l);
/* The first waits until everything that was begun is queued on the stream, the second until the
 * stream has completed it. */
int nccl_link_settle(struct nccl_link *l, struct err *e);
int nccl_link_finish(struct nccl_link *l, struct err *e);

#endif
