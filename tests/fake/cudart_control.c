/* The functions by which tests control the fake CUDA runtime, see cudart.h. */
#include "cudart_inside.h"
#include <string.h>

void
fake_cuda_fail(const char *call, unsigned error, int after, int times)
{
	fake_lock();
	if (!fake.read)
		fake_read_words();
	fake_add_failure(call, strlen(call), error, after, times);
	fake_unlock();
}

void
fake_cuda_lose(unsigned error)
{
	fake_lock();
	fake.lost = error;
	fake_unlock();
}

void
fake_cuda_hold(struct CUstream_st *stream)
{
	fake_lock();
	fake.held = true;
	fake_enqueue(stream, (struct task){.holds = true});
	fake_unlock();
}

void
fake_cuda_release(void)
{
	fake_lock();
	fake.held = false;
	pthread_cond_broadcast(&fake.changed);
	fake_unlock();
}

void
fake_cuda_stall(int on)
{
	fake_lock();
	fake_stalled = on;
	fake_stalled_calls = 0;
	pthread_cond_broadcast(&fake.changed);
	fake_unlock();
}

void
fake_cuda_enqueue(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
	fake_lock();
	fake_enqueue(stream, (struct task){.fn = fn, .arg = arg});
	fake_unlock();
}

void
fake_cuda_capture(struct CUstream_st *stream, int on, int implicit)
{
	fake_lock();
	if (stream)
		stream->captured = on;
	fake.implicit_capture = on && implicit;
	fake_unlock();
}

void *
fake_cuda_bytes(uint64_t address, size_t n)
{
	void *p;

	fake_lock();
	p = fake_bytes((const void *)(uintptr_t)address, n);
	fake_unlock();
	return p;
}

uint64_t
fake_cuda_copied(void)
{
	uint64_t n;

	fake_lock();
	n = fake.copied;
	fake_unlock();
	return n;
}

static int
read_count(const int *count)
{
	int n;

	fake_lock();
	n = *count;
	fake_unlock();
	return n;
}

int
fake_cuda_pageable(void)
{
	return read_count(&fake.pageable);
}

int
fake_cuda_stalled(void)
{
	return read_count(&fake_stalled_calls);
}

unsigned
fake_cuda_contexts(void)
{
	unsigned all;

	fake_lock();
	all = fake.contexts;
	fake_unlock();
	return all;
}

int
fake_cuda_broken_captures(void)
{
	return read_count(&fake.broken);
}

int
fake_cuda_live(void)
{
	return read_count(&fake.live);
}
