/*
 * NCCL, loaded on demand as cuda.h says: a communicator of the engine's own over ranks, for work
 * that files ask for. Whatever fails is one line of text; the rank goes on.
 *
 * errno: EOPNOTSUPP no library; EHOSTDOWN another rank is gone, or the communicator was aborted;
 * EREMOTEIO whatever else it refuses.
 */
#ifndef NCCL_OWN_H
#define NCCL_OWN_H
#include "err.h"

struct CUstream_st;
struct ncclComm;

enum { NCCL_ID_SIZE = 128 }; /* bytes that all ranks of a communicator are given by one */

/* The collectives that can be put into a stream; of float32. */
enum nccl_call { NCCL_ALL_REDUCE, NCCL_ALL_GATHER, NCCL_BROADCAST, NCCL_SEND_RECV };

/* Loads the library, once: a failure is remembered. $DDIP_NCCL names the library to be loaded. */
int nccl_open(const char *folders, struct err *e);
void nccl_close(void);		/* for tests: as if it had never been loaded */
const char *nccl_version(void); /* "NCCL 2.28.9"; "": not open */

int nccl_id(char id[NCCL_ID_SIZE], struct err *e);
/* Waits until all ranks are there. The thread's device is the one that it works on. */
int nccl_new(
    struct ncclComm **comm, const char id[NCCL_ID_SIZE], int rank, int ranks, struct err *e);
/* All that is in it has ended. */
void nccl_free(struct ncclComm *comm);
/* Ends kernels of it that wait for other ranks, and the communicator. Any thread. */
void nccl_abort(struct ncclComm *comm);
/* What went wrong in the background: 0 or as above. */
int nccl_error(struct ncclComm *comm, struct err *e);
/* count elements at `from`; a broadcast is from rank 0, send and receive go to the next rank and
 * come from the one before; all_gather brings count of each rank to `to`. */
int nccl_put(struct ncclComm *comm, enum nccl_call call, uint64_t from, uint64_t to, size_t count,
    int rank, int ranks, struct CUstream_st *stream, struct err *e);

#endif
