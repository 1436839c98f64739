/*
 * What tests can do with the fake CUDA runtime beside its calls. A library of its own: these are
 * looked up with dlsym or ctypes.
 */
#ifndef FAKE_CUDART_H
#define FAKE_CUDART_H
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* The call of this name fails with this error, after `after` more that work, `times` times (-1:
 * always). */
void fake_cuda_fail(const char *call, unsigned error, int after, int times);
/* All calls fail with this error from now on; 0: they work again. */
void fake_cuda_lose(unsigned error);
/* A kernel that runs until fake_cuda_release(): what is behind it in its stream waits. */
void fake_cuda_hold(struct CUstream_st *stream);
void fake_cuda_release(void);
/* Calls of a device (1) block, as a driver does that is busy; (0) no more. */
void fake_cuda_stall(int on);
int fake_cuda_stalled(void); /* calls that block for that */
/* fn(arg) runs in the stream, behind what is in there. */
void fake_cuda_enqueue(struct CUstream_st *stream, void (*fn)(void *arg), void *arg);
/* The stream is captured (1), and with implicit so is what the default stream does. */
void fake_cuda_capture(struct CUstream_st *stream, int on, int implicit);
/* Where the host may read and write what lies at this address of a device; NULL: nothing does. */
void *fake_cuda_bytes(uint64_t address, size_t n);
/* How many bytes were copied from or to devices. */
uint64_t fake_cuda_copied(void);
/* Copies from or to host memory that was not registered; those on the default stream. */
int fake_cuda_pageable(void);
/* The devices that a context was made for, a bit each; captures that were broken. */
unsigned fake_cuda_contexts(void);
int fake_cuda_broken_captures(void);
int fake_cuda_live(void); /* allocations that are not freed */

#endif
