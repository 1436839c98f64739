/*
 * The CUDA runtime, loaded on demand: the copy already in the process (torch's), else the one in
 * the Python environment, else the system's. A failure is reported as one line of text; the rank
 * goes on. All work is done in the primary context of a device, which is shared with the program.
 * No context is created on a device that the program has not asked for.
 *
 * errno: EOPNOTSUPP no library, no driver or no device; ENOMEM; EHOSTDOWN the context is lost and
 * all further calls fail; EREMOTEIO any other error of the device.
 */
#ifndef CUDA_H
#define CUDA_H
#include "err.h"

struct CUstream_st;
struct CUevent_st;

/* Loads the library once; a failure is remembered. folders: further folders to search, each
 * terminated by ':'. $DDIP_CUDART names the library to load and replaces the search. */
int cuda_open(const char *folders, struct err *e);
bool cuda_is_open(void);
void cuda_close(void);		/* for tests: undoes cuda_open() */
const char *cuda_version(void); /* "CUDA 13.0, libcudart.so.13"; "" if not open */

/* Errors. True if the context of the device is lost: every CUDA call of this process fails. */
bool cuda_is_lost(void);
/* The error that reported the loss, prefixed with `GPU N: ` if its thread has selected a device.
 * "" if the context is not lost. */
const char *cuda_lost_text(void);

/* Keeps the calls of this thread from disturbing a stream capture in another thread. Call it after
 * cuda_use(): like most calls, it creates a context on the current device. */
int cuda_thread_begin(struct err *e);
int cuda_device_count(int *n, struct err *e);
/* A device on which this process has a context already; -1: none. Loads no library. */
int cuda_device_in_use(void);
int cuda_use(int device, struct err *e); /* for this thread's calls */
int cuda_current(int *device, struct err *e);
/* Sets *device to the device that owns this memory. -EINVAL if it is not device memory. */
int cuda_owner(uint64_t address, int *device, struct err *e);
int cuda_memory(size_t *free, size_t *total, struct err *e); /* current device, in bytes */

int cuda_alloc(uint64_t *address, size_t size, struct err *e);
void cuda_free(uint64_t address);
/* Page-locks host memory, so that copies need no staging buffer, for the life of the process. */
int cuda_register(void *p, size_t size, struct err *e);

/* Creates a stream that does not synchronize implicitly with the default stream. */
int cuda_stream_new(struct CUstream_st **stream, struct err *e);
void cuda_stream_free(struct CUstream_st *stream);
/* Has all work queued on the stream completed? Returns 1 or 0, or -errno if it failed. */
int cuda_stream_done(struct CUstream_st *stream, struct err *e);
int cuda_stream_wait(struct CUstream_st *stream, struct CUevent_st *event, struct err *e);
int cuda_copy_out(struct CUstream_st *stream, void *to, uint64_t from, size_t n, struct err *e);
int cuda_copy_in(
    struct CUstream_st *stream, uint64_t to, const void *from, size_t n, struct err *e);

int cuda_event_new(struct CUevent_st **event, struct err *e);
void cuda_event_free(struct CUevent_st *event);
/* Records the work now queued on the stream (NULL: the default stream). -EAGAIN if a capture is in
 * progress there. */
int cuda_event_record(struct CUevent_st *event, struct CUstream_st *stream, struct err *e);
/* Has it completed? Returns 1 or 0, or -errno if the work before it failed. */
int cuda_event_done(struct CUevent_st *event, struct err *e);

#endif
