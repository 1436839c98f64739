/*
 * The part of the CUDA runtime that is used, declared here so that its headers are not needed to
 * build. tests/gpu/headers.c compares all of this with NVIDIA's own headers. No other header
 * declares a CUDA call.
 */
#ifndef CUDA_API_H
#define CUDA_API_H
#include <stddef.h>

struct CUstream_st;
struct CUevent_st;
struct cudaPointerAttributes;

/*  (name, return type, parameters, required?) */
/* clang-format off */
#define CUDA_CALLS(X) \
	X(cudaRuntimeGetVersion, unsigned, (int *version), 1) \
	X(cudaDriverGetVersion, unsigned, (int *version), 1) \
	X(cudaGetErrorName, const char *, (unsigned error), 1) \
	X(cudaGetErrorString, const char *, (unsigned error), 1) \
	X(cudaGetLastError, unsigned, (void), 1) \
	X(cudaGetDeviceCount, unsigned, (int *count), 1) \
	X(cudaSetDevice, unsigned, (int device), 1) \
	X(cudaGetDevice, unsigned, (int *device), 1) \
	X(cudaPointerGetAttributes, unsigned, (struct cudaPointerAttributes *to, const void *p), 1) \
	X(cudaMemGetInfo, unsigned, (size_t *free, size_t *total), 1) \
	X(cudaMalloc, unsigned, (void **p, size_t size), 1) \
	X(cudaFree, unsigned, (void *p), 1) \
	X(cudaHostRegister, unsigned, (void *p, size_t size, unsigned flags), 1) \
	X(cudaMemcpyAsync, unsigned, (void *to, const void *from, size_t count, unsigned kind, \
	    struct CUstream_st *stream), 1) \
	X(cudaStreamCreateWithFlags, unsigned, (struct CUstream_st **stream, unsigned flags), 1) \
	X(cudaStreamDestroy, unsigned, (struct CUstream_st *stream), 1) \
	X(cudaStreamQuery, unsigned, (struct CUstream_st *stream), 1) \
	X(cudaStreamWaitEvent, unsigned, (struct CUstream_st *stream, struct CUevent_st *event, \
	    unsigned flags), 1) \
	X(cudaStreamIsCapturing, unsigned, (struct CUstream_st *stream, unsigned *status), 1) \
	X(cudaThreadExchangeStreamCaptureMode, unsigned, (unsigned *mode), 1) \
	X(cudaEventCreateWithFlags, unsigned, (struct CUevent_st **event, unsigned flags), 1) \
	X(cudaEventRecord, unsigned, (struct CUevent_st *event, struct CUstream_st *stream), 1) \
	X(cudaEventQuery, unsigned, (struct CUevent_st *event), 1) \
	X(cudaEventDestroy, unsigned, (struct CUevent_st *event), 1)
/* clang-format on */

/*  (NVIDIA's name, value) */
#define CUDA_VALUES(X)                                                                             \
	X(cudaSuccess, 0)                                                                          \
	X(cudaErrorMemoryAllocation, 2)                                                            \
	X(cudaErrorInsufficientDriver, 35)                                                         \
	X(cudaErrorNoDevice, 100)                                                                  \
	X(cudaErrorECCUncorrectable, 214)                                                          \
	X(cudaErrorNvlinkUncorrectable, 220)                                                       \
	X(cudaErrorContained, 226)                                                                 \
	X(cudaErrorNotReady, 600)                                                                  \
	X(cudaErrorIllegalAddress, 700)                                                            \
	X(cudaErrorLaunchTimeout, 702)                                                             \
	X(cudaErrorAssert, 710)                                                                    \
	X(cudaErrorHardwareStackError, 714)                                                        \
	X(cudaErrorIllegalInstruction, 715)                                                        \
	X(cudaErrorMisalignedAddress, 716)                                                         \
	X(cudaErrorInvalidAddressSpace, 717)                                                       \
	X(cudaErrorInvalidPc, 718)                                                                 \
	X(cudaErrorLaunchFailure, 719)                                                             \
	X(cudaErrorTensorMemoryLeak, 721)                                                          \
	X(cudaErrorMpsClientTerminated, 810)                                                       \
	X(cudaErrorStreamCaptureImplicit, 906)                                                     \
	X(cudaErrorExternalDevice, 911)                                                            \
	X(cudaMemcpyHostToDevice, 1)                                                               \
	X(cudaMemcpyDeviceToHost, 2)                                                               \
	X(cudaMemoryTypeDevice, 2)                                                                 \
	X(cudaMemoryTypeManaged, 3)                                                                \
	X(cudaStreamCaptureStatusNone, 0)                                                          \
	X(cudaStreamCaptureModeRelaxed, 2)                                                         \
	X(cudaStreamNonBlocking, 1)                                                                \
	X(cudaEventDisableTiming, 2)                                                               \
	X(cudaHostRegisterPortable, 1)

/* NVIDIA's names with the prefix `d`, so that both headers can be included. */
enum {

#define X(name, value) d##name = (value),
	CUDA_VALUES(X)
#undef X
};

/* struct cudaPointerAttributes: the fields that are read, and room for those of newer versions. */
struct cuda_attributes {
	unsigned type; /* cudaMemoryType */
	int device;
	void *device_pointer, *host_pointer;
	long more[16];
};

#endif
