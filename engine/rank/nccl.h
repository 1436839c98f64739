/*
 * NCCL, loaded on demand as described in cuda.h. A communicator is non-blocking: poll nccl_state()
 * for what was begun, and the stream for the completion of an operation. A failure is reported as
 * one line of text; the rank goes on. A communicator belongs to one thread and uses that thread's
 * current device.
 *
 * errno: EOPNOTSUPP no library; EHOSTDOWN another rank, or the connection to it, is lost; EREMOTEIO
 * any other error.
 */
#ifndef NCCL_OWN_H
#define NCCL_OWN_H
#include "err.h"

struct ncclComm;
struct CUstream_st;

enum { NCCL_ID_SIZE = 128 }; /* bytes; one rank makes the id for all ranks of a communicator */

/* Numbers in device memory, float32 unless stated otherwise. from and to are device addresses and
 * may be equal. */
struct nccl_data {
	uint64_t from, to;
	size_t count;
};

/* How a reduction combines the numbers at the same index on all ranks. */
enum nccl_op { NCCL_SUM, NCCL_MIN, NCCL_MAX };

/* Loads the library once; a failure is remembered. $DDIP_NCCL names the library to load. */
int nccl_open(const char *folders, struct err *e);
bool nccl_is_open(void);
void nccl_close(void);		/* for tests: undoes nccl_open() */
const char *nccl_version(void); /* "NCCL 2.28.9"; "" if not open */

int nccl_id(char id[NCCL_ID_SIZE], struct err *e);
/* Begins to connect to the other ranks; nccl_state() reports when all have joined. If *comm is set,
 * release it with nccl_abort(), also after a failure. */
int nccl_new(
    struct ncclComm **comm, const char id[NCCL_ID_SIZE], int rank, int ranks, struct err *e);
/* Has everything that was requested begun, and has no peer failed? Returns 1, 0 if not yet, or
 * -errno. */
int nccl_state(struct ncclComm *comm, struct err *e);
/* Begins to finalize it together with the other ranks. Free it once nccl_state() returns 1. */
int nccl_finalize(struct ncclComm *comm, struct err *e);
int nccl_free(struct ncclComm *comm, struct err *e);
/* Aborts its operations and frees it, whatever the other ranks do. NULL is allowed. */
void nccl_abort(struct ncclComm *comm);

/* Can the communicators that a loaded library created be revoked? owner is its soname. -EOPNOTSUPP:
 * it uses another NCCL, or one that is too old. */
int nccl_can_revoke(const char *owner, struct err *e);
/* Ends the operations of communicators that others own and free, and prevents new ones. Blocks
 * until that is done. */
int nccl_revoke(struct ncclComm *const *comms, int n, struct err *e);

/* Collective operations, queued on the stream. The sum: */
int nccl_all_reduce(
    struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d, struct err *e);
/* count elements of each rank; `to` has room for those of all ranks. */
int nccl_all_gather(
    struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d, struct err *e);
/* Combines elements of this type (an ncclDataType_t value) on rank 0; the others ignore `to`. */
int nccl_reduce(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    unsigned type, enum nccl_op op, struct err *e);
int nccl_broadcast(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    int root, struct err *e);
/* Sends the data at `from` to the receiver, and receives into `to` from the sender, which may be
 * the same rank. */
int nccl_exchange(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    int receiver, int sender, struct err *e);

#endif
