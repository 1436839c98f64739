/*
 * What tests can do with the fake CUDA runtime besides calling it. It is a separate library: look
 * these functions up with dlsym or ctypes.
 */
#ifndef FAKE_CUDART_H
#define FAKE_CUDART_H
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* After `after` more successful calls, the call of this name fails with this error `times` times
 * (-1: always). */
void fake_cuda_fail(const char *call, unsigned error, int after, int times);
/* All calls fail with this error from now on; 0: they work again. */
void fake_cuda_lose(unsigned error);
/* Enqueues a kernel that runs until fake_cuda_release(): work behind it in the stream waits. */
void fake_cuda_hold(struct CUstream_st *stream);
void fake_cuda_release(void);
/* 1: calls that need a device block, as with a busy driver; 0: they no longer do. */
void fake_cuda_stall(int on);
int fake_cuda_stalled(void); /* calls that are blocked by fake_cuda_stall */
/* Runs fn(arg) in the stream, behind the work that is in it. */
void fake_cuda_enqueue(struct CUstream_st *stream, void (*fn)(void *arg), void *arg);
/* Marks the stream as being captured (1) or not (0); with implicit, work on the default stream is
 * captured, too. */
void fake_cuda_capture(struct CUstream_st *stream, int on, int implicit);
/* Where the host can read and write the n bytes at this device address; NULL: not allocated. */
void *fake_cuda_bytes(uint64_t address, size_t n);
/* How many bytes were copied from or to devices. */
uint64_t fake_cuda_copied(void);
/* Number of copies from or to host memory that was not registered, and of copies on the default
 * stream. */
int fake_cuda_pageable(void);
/* A bit for each device for which a context was created; the number of captures that were
 * broken. */
unsigned fake_cuda_contexts(void);
int fake_cuda_broken_captures(void);
int fake_cuda_live(void); /* allocations that are not yet freed */

#endif
