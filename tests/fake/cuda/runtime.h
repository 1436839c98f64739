/*
 * Shared by the files of the fake CUDA runtime that the CUDA build of torch runs on, see
 * runtime.cpp.
 *
 * Memory of a device is a file, mapped twice: without any access at the device's address, so that
 * host code that touches it crashes as with a GPU, and with access ALIAS above it.
 */
#ifndef FAKE_CUDA_RUNTIME_H
#define FAKE_CUDA_RUNTIME_H
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fake
{
constexpr uintptr_t BASE = 0x200000000000, SPAN = 1ull << 40, ALIAS = 0x100000000000;
constexpr int DEVICES_MAX = 16;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

struct Task {
	std::function<void()> run;
	CUevent_st *waits_for = nullptr, *records = nullptr;
	uint64_t number = 0; /* of that record of the event */
};
} // namespace fake

struct CUstream_st { /* never freed, so that use of one that was destroyed is noticed */
	int device = 0, priority = 0;
	std::deque<fake::Task> tasks;
	bool busy = false, started = false, ends = false;

	bool idle() const
	{
		return tasks.empty() && !busy;
	}
};

struct CUevent_st { /* never freed: tasks may refer to it */
	uint64_t recorded = 0, reached = 0;
	fake::Clock::time_point at;
};

namespace fake
{
struct Device {
	int fd = -1;
	bool context = false;
	size_t used = 0;
	std::map<uintptr_t, size_t> unused, live; /* address, bytes */
	CUstream_st legacy;
};

struct Failure {
	std::string name; /* of a call, or of an operator */
	int error, after, times;
};

struct Slow {
	std::string name;
	long us;
};

struct Runtime {
	std::mutex lock;
	std::condition_variable changed;
	pid_t owner = 0; /* the process that has called first */
	int gpus = 8, lost = 0, stalled_calls = 0;
	bool held = false, stalled = false;
	size_t memory = (size_t)4 << 30; /* bytes of a device */
	unsigned delay_us = 0;		 /* of each copy */
	uint64_t copied = 0;
	Device devices[DEVICES_MAX];
	std::vector<int> visible; /* logical to physical number */
	std::vector<Failure> failures;
	std::vector<Slow> slow;
	std::vector<CUstream_st *> streams;
	std::map<uintptr_t, size_t> pinned; /* host memory: address, bytes */
};

extern Runtime &self;		      /* never destroyed: threads run at exit */
extern thread_local int current;      /* device of this thread */
extern thread_local cudaError_t last; /* error of this thread */

/* What a call needs: a device, or not; it also works when the context is lost. */
enum Needs { DEVICE, NO_DEVICE, NEVER_LOST };

/* A call of the runtime, which holds the lock until it returns. */
struct Call {
	Lock lock;
	cudaError_t error;

	explicit Call(const char *name, Needs needs = DEVICE);
};

#define ENTER(...)                                                                                 \
	fake::Call call(__func__ __VA_OPT__(, ) __VA_ARGS__);                                      \
	if (call.error != cudaSuccess)                                                             \
	return call.error

/* All that follows is called with the lock held. */
cudaError_t error(cudaError_t code); /* keeps it as the thread's last error, and returns it */
cudaError_t lost_error();	     /* cudaSuccess: the context is not lost */
/* The error that this name is to fail with now; 0: none. */
int failure(const char *name);
bool is_device(const void *p);
/* Is [p, p + n) host memory, or within one live allocation? */
bool is_valid(const void *p, size_t n);
bool is_pinned(const void *p, size_t n);
/* Where the host accesses it. */
void *alias(const void *p);
CUstream_st *stream(cudaStream_t s); /* of the current device, if it is the default one */
void enqueue(CUstream_st *s, Task task);
/* Runs it at once if the stream is idle and copies are not slow. */
void run_or_enqueue(CUstream_st *s, std::function<void()> run);
/* Waits until the stream is idle or the context lost. */
void drain(Lock &lock, CUstream_st *s);
void drain_device(Lock &lock, int device);
} // namespace fake

/* For the other fakes, and tests/fake/cudart.h for the tests. */
extern "C" {
#include "../cudart.h"
void *fake_cuda_alias(const void *p);
int fake_cuda_is_device(const void *p);
int fake_cuda_is_idle(cudaStream_t s);
int fake_cuda_is_lost(void);
/* By $FAKE_CUDA: how much longer the kernels of this operator take (0, or -1: for ever), and the
 * error that this one ends with (0: none). */
long fake_cuda_slow_us(const char *op);
int fake_cuda_failure(const char *op);
/* Returns after that time, or when the context is lost; -1: only then. */
void fake_cuda_spin(long us);
}
#endif
