/*
 * What is used of NCCL, declared by ourselves: its header is not needed to build.
 * tests/gpu/headers.c compares all of this with NVIDIA's own header. No other file names a call.
 */
#ifndef NCCL_API_H
#define NCCL_API_H
#include <stddef.h>

struct ncclComm;

enum { NCCL_ID_BYTES = 128 };

#ifndef NCCL_H_ /* the guard of NVIDIA's header, which has the same type */
typedef struct {
	char internal[NCCL_ID_BYTES];
} ncclUniqueId;
#endif

/*  (name, what it returns, what it takes, is it needed?) */
/* clang-format off */
#define NCCL_CALLS(X) \
	X(ncclGetVersion, unsigned, (int *version), 1) \
	X(ncclGetUniqueId, unsigned, (ncclUniqueId *id), 1) \
	X(ncclCommInitRank, unsigned, (struct ncclComm **comm, int ranks, ncclUniqueId id, int rank), 1) \
	X(ncclGetErrorString, const char *, (unsigned error), 1) \
	X(ncclGetLastError, const char *, (struct ncclComm *comm), 0)
/* clang-format on */

/*  (NVIDIA's name, value) */
#define NCCL_VALUES(X)                                                                             \
	X(ncclSuccess, 0)                                                                          \
	X(ncclUnhandledCudaError, 1)                                                               \
	X(ncclSystemError, 2)                                                                      \
	X(ncclInProgress, 7)

/* NVIDIA's names with a `d` before them: both headers can be included. */
enum {

#define X(name, value) d##name = (value),
	NCCL_VALUES(X)
#undef X
};

#endif
