/*
 * NCCL, loaded on demand as cuda.h says: which version there is (rankK/gpu), and a communicator of
 * the engine's own. Whatever fails is one line of text; the rank goes on.
 *
 * errno: EOPNOTSUPP no library; EHOSTDOWN another rank is gone, or the communicator was aborted;
 * EREMOTEIO whatever else it refuses.
 */
#ifndef NCCL_OWN_H
#define NCCL_OWN_H
#include "err.h"

struct ncclComm;

enum { NCCL_ID_SIZE = 128 }; /* bytes that all ranks of a communicator are given by one */

/* Loads the library, once: a failure is remembered. $DDIP_NCCL names the library to be loaded. */
int nccl_open(const char *folders, struct err *e);
void nccl_close(void);		/* for tests: as if it had never been loaded */
const char *nccl_version(void); /* "NCCL 2.28.9"; "": not open */

int nccl_id(char id[NCCL_ID_SIZE], struct err *e);
/* Waits until all ranks are there. The thread's device is the one that it works on. */
int nccl_new(
    struct ncclComm **comm, const char id[NCCL_ID_SIZE], int rank, int ranks, struct err *e);

#endif
