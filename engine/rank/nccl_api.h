/*
 * The part of NCCL that is used, declared here so that its header is not needed to build.
 * tests/gpu/headers.c compares all of this with NVIDIA's own header. No other header declares an
 * NCCL call.
 */
#ifndef NCCL_API_H
#define NCCL_API_H
#include <stddef.h>

struct ncclComm;
struct CUstream_st;

enum { NCCL_ID_BYTES = 128 };

/* The beginning of ncclConfig_t: the fields of its first version, in NCCL 2.14. Later versions use
 * their defaults for the rest. */
struct nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking;
};

enum { NCCL_CONFIG_MAGIC = (int)0xcafebeef, NCCL_CONFIG_VERSION = 21400 };

#ifndef NCCL_H_ /* the guard of NVIDIA's header, which defines the same types */
typedef struct {
	char internal[NCCL_ID_BYTES];
} ncclUniqueId;

typedef struct nccl_config ncclConfig_t;
#endif

/*  (name, return type, parameters, required?) */
/* clang-format off */
#define NCCL_CALLS(X) \
	X(ncclGetVersion, unsigned, (int *version), 1) \
	X(ncclGetUniqueId, unsigned, (ncclUniqueId *id), 1) \
	X(ncclCommInitRankConfig, unsigned, (struct ncclComm **comm, int ranks, ncclUniqueId id, \
	    int rank, ncclConfig_t *config), 1) \
	X(ncclCommFinalize, unsigned, (struct ncclComm *comm), 1) \
	X(ncclCommDestroy, unsigned, (struct ncclComm *comm), 1) \
	X(ncclCommAbort, unsigned, (struct ncclComm *comm), 1) \
	X(ncclCommRevoke, unsigned, (struct ncclComm *comm, int flags), 0) \
	X(ncclCommGetAsyncError, unsigned, (struct ncclComm *comm, unsigned *error), 1) \
	X(ncclAllReduce, unsigned, (const void *from, void *to, size_t count, unsigned type, \
	    unsigned op, struct ncclComm *comm, struct CUstream_st *stream), 1) \
	X(ncclAllGather, unsigned, (const void *from, void *to, size_t count, unsigned type, \
	    struct ncclComm *comm, struct CUstream_st *stream), 1) \
	X(ncclReduce, unsigned, (const void *from, void *to, size_t count, unsigned type, \
	    unsigned op, int root, struct ncclComm *comm, struct CUstream_st *stream), 1) \
	X(ncclBroadcast, unsigned, (const void *from, void *to, size_t count, unsigned type, \
	    int root, struct ncclComm *comm, struct CUstream_st *stream), 1) \
	X(ncclSend, unsigned, (const void *from, size_t count, unsigned type, int peer, \
	    struct ncclComm *comm, struct CUstream_st *stream), 1) \
	X(ncclRecv, unsigned, (void *to, size_t count, unsigned type, int peer, \
	    struct ncclComm *comm, struct CUstream_st *stream), 1) \
	X(ncclGroupStart, unsigned, (void), 1) \
	X(ncclGroupEnd, unsigned, (void), 1) \
	X(ncclGetErrorString, const char *, (unsigned error), 1) \
	X(ncclGetLastError, const char *, (struct ncclComm *comm), 0)
/* clang-format on */

/*  (NVIDIA's name, value) */
#define NCCL_VALUES(X)                                                                             \
	X(ncclSuccess, 0)                                                                          \
	X(ncclUnhandledCudaError, 1)                                                               \
	X(ncclSystemError, 2)                                                                      \
	X(ncclInternalError, 3)                                                                    \
	X(ncclInvalidArgument, 4)                                                                  \
	X(ncclInvalidUsage, 5)                                                                     \
	X(ncclRemoteError, 6)                                                                      \
	X(ncclInProgress, 7)                                                                       \
	X(ncclSum, 0)                                                                              \
	X(ncclMax, 2)                                                                              \
	X(ncclMin, 3)                                                                              \
	X(ncclInt8, 0)                                                                             \
	X(ncclUint8, 1)                                                                            \
	X(ncclInt32, 2)                                                                            \
	X(ncclUint32, 3)                                                                           \
	X(ncclInt64, 4)                                                                            \
	X(ncclUint64, 5)                                                                           \
	X(ncclFloat16, 6)                                                                          \
	X(ncclFloat32, 7)                                                                          \
	X(ncclFloat64, 8)                                                                          \
	X(ncclBfloat16, 9)

/* NVIDIA's names with the prefix `d`, so that both headers can be included. */
enum {

#define X(name, value) d##name = (value),
	NCCL_VALUES(X)
#undef X
};

#endif
