/*
 * NCCL, loaded on demand as cuda.h says. A communicator here never blocks its thread: what was
 * begun is asked for with nccl_state(), and a stream says when an operation is done. Whatever fails
 * is one line of text; the rank goes on. A communicator is for one thread; the device is the
 * thread's own.
 *
 * errno: EOPNOTSUPP no library; EHOSTDOWN another rank is gone, or a link to it; EREMOTEIO whatever
 * else it refuses.
 */
#ifndef NCCL_OWN_H
#define NCCL_OWN_H
#include "err.h"

struct ncclComm;
struct CUstream_st;

enum { NCCL_ID_SIZE = 128 }; /* bytes that all ranks of a communicator are given by one */

/* Numbers of a device, float32 where nothing else is said. from, to: addresses there, which may be
 * the same. */
struct nccl_data {
	uint64_t from, to;
	size_t count;
};

/* What a reduction makes of numbers that are in the same place on all ranks. */
enum nccl_op { NCCL_SUM, NCCL_MIN, NCCL_MAX };

/* Loads the library, once: a failure is remembered. $DDIP_NCCL names the library to be loaded. */
int nccl_open(const char *folders, struct err *e);
void nccl_close(void);		/* for tests: as if it had never been loaded */
const char *nccl_version(void); /* "NCCL 2.28.9"; "": not open */

int nccl_id(char id[NCCL_ID_SIZE], struct err *e);
/* Begins to meet the other ranks: nccl_state() says when all are there. *comm is to be given up
 * with nccl_abort() also after a failure, if it is set. */
int nccl_new(
    struct ncclComm **comm, const char id[NCCL_ID_SIZE], int rank, int ranks, struct err *e);
/* Has all begun that was asked for, and has no peer failed? 1, 0: not yet, or what went wrong. */
int nccl_state(struct ncclComm *comm, struct err *e);
/* Begins to end it together with the other ranks: when nccl_state() says so it may be freed. */
int nccl_finalize(struct ncclComm *comm, struct err *e);
int nccl_free(struct ncclComm *comm, struct err *e);
/* Ends its operations where they are and frees it, whatever the other ranks do; NULL is none. */
void nccl_abort(struct ncclComm *comm);

/* Can communicators be revoked that this library of the process (its soname) has made? -EOPNOTSUPP:
 * it calls another NCCL, or an old one. */
int nccl_can_revoke(const char *owner, struct err *e);
/* Ends the operations of communicators that others own and free; no new one can be begun. Waits
 * until that is so. */
int nccl_revoke(struct ncclComm *const *comms, int n, struct err *e);

/* Operations of all ranks, put into the stream. The sum: */
int nccl_all_reduce(
    struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d, struct err *e);
/* count elements of each rank; to has room for all. */
int nccl_all_gather(
    struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d, struct err *e);
/* Elements of this type, as NCCL numbers them, combined on rank 0; `to` is nothing to the others.
 */
int nccl_reduce(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    unsigned type, enum nccl_op op, struct err *e);
int nccl_broadcast(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    int root, struct err *e);
/* Sends to one rank what is at from and receives from another one, or the same, into to. */
int nccl_exchange(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    int receiver, int sender, struct err *e);

#endif
