/*
 * The CUDA runtime, loaded on demand: the copy that is in the process already (torch's), else that
 * of the Python environment, else the system's. Whatever fails is one line of text; the rank goes
 * on. Works in the primary context of a device, which is the program's own: none is made here but
 * where the program has asked for a device.
 *
 * errno: EOPNOTSUPP no library, no driver or no device; ENOMEM; EHOSTDOWN the context is lost, all
 * calls fail from now on; EREMOTEIO whatever else the device refuses.
 */
#ifndef CUDA_H
#define CUDA_H
#include "err.h"

struct CUstream_st;
struct CUevent_st;

/* Loads the library, once: a failure is remembered. folders: where else to look, ended by ':'
 * each. $DDIP_CUDART names the library to be loaded in place of all. */
int cuda_open(const char *folders, struct err *e);
bool cuda_is_open(void);
void cuda_close(void);		/* for tests: as if it had never been loaded */
const char *cuda_version(void); /* "CUDA 13.0, libcudart.so.13"; "": not open */

/* Errors. True: the context of the device is lost, nothing works any more in this process. */
bool cuda_is_lost(void);
/* The error that said so, behind `GPU N: ` if its thread has chosen a device; "": is not lost. */
const char *cuda_lost_text(void);

/* The calls of this thread do not disturb a stream that another thread captures. After
 * cuda_use(): as most calls it makes a context on the device in use. */
int cuda_thread_begin(struct err *e);
int cuda_device_count(int *n, struct err *e);
int cuda_use(int device, struct err *e); /* for this thread's calls */
int cuda_current(int *device, struct err *e);
/* The device whose memory this is; -EINVAL: it is not memory of a device. */
int cuda_owner(uint64_t address, int *device, struct err *e);
int cuda_memory(size_t *free, size_t *total, struct err *e); /* bytes of the device in use */

int cuda_alloc(uint64_t *address, size_t size, struct err *e);
void cuda_free(uint64_t address);
/* Makes host memory such that copies need no other; for the life of the process. */
int cuda_register(void *p, size_t size, struct err *e);

/* A stream of our own, which no other waits for. */
int cuda_stream_new(struct CUstream_st **stream, struct err *e);
void cuda_stream_free(struct CUstream_st *stream);
/* Is all done that was put into it? 1, 0, or what failed in it. */
int cuda_stream_done(struct CUstream_st *stream, struct err *e);
int cuda_stream_wait(struct CUstream_st *stream, struct CUevent_st *event, struct err *e);
int cuda_copy_out(struct CUstream_st *stream, void *to, uint64_t from, size_t n, struct err *e);
int cuda_copy_in(
    struct CUstream_st *stream, uint64_t to, const void *from, size_t n, struct err *e);

int cuda_event_new(struct CUevent_st **event, struct err *e);
void cuda_event_free(struct CUevent_st *event);
/* All that is in the stream now (NULL: the default one). -EAGAIN: a capture is under way there. */
int cuda_event_record(struct CUevent_st *event, struct CUstream_st *stream, struct err *e);
/* Is it done? 1, 0, or what failed before it. */
int cuda_event_done(struct CUevent_st *event, struct err *e);

#endif
