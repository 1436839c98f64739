/*
 * A CUDA 13 runtime without a GPU, for the CUDA build of torch. It is no GPU: it proves nothing
 * about kernels, numbers, speed, or what NVIDIA's libraries do where their headers do not say it.
 * Words of $FAKE_CUDA, separated by blanks:
 *   gpus=2          number of devices     mem=512   MiB of each
 *   delay=300       each copy takes this many microseconds longer
 *   slow=NAME:3000  kernels of this operator (aten::mm) take this much longer; hang=NAME: for ever
 *   fail=NAME:ERROR[:AFTER[:TIMES]]  as fake_cuda_fail(); with the name of an operator, its kernel
 * fails with this error, and the context is lost
 */
#include "runtime.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <strings.h>
#include <unistd.h>

namespace fake
{
Runtime &self = *new Runtime;
thread_local int current;
thread_local cudaError_t last;

static void
read_word(const char *w)
{
	char name[64];
	int code, after = 0, times = -1;
	long us;

	if (strncmp(w, "gpus=", 5) == 0)
		self.gpus = atoi(w + 5);
	else if (strncmp(w, "mem=", 4) == 0)
		self.memory = (size_t)atol(w + 4) << 20;
	else if (strncmp(w, "delay=", 6) == 0)
		self.delay_us = (unsigned)atoi(w + 6);
	else if (sscanf(w, "hang=%63s", name) == 1)
		self.slow.push_back({name, -1});
	/* names of operators have colons, too */
	else if (const char *at = strrchr(w, ':');
		 at && strncmp(w, "slow=", 5) == 0 && sscanf(at, ":%ld", &us) == 1)
		self.slow.push_back({std::string(w + 5, at), us});
	else if (const char *at = w + strcspn(w, ":"); strncmp(w, "fail=", 5) == 0) {
		if (at[1] == ':')
			at += 2 + strcspn(at + 2, ":");
		if (sscanf(at, ":%d:%d:%d", &code, &after, &times) >= 1)
			self.failures.push_back({std::string(w + 5, at), code, after, times});
	}
}

/* As $CUDA_VISIBLE_DEVICES says, by numbers or the UUIDs of tests/fake/nvml.c. */
static void
find_devices()
{
	const char *p = getenv("CUDA_VISIBLE_DEVICES");

	for (int i = 0; !p && i < self.gpus; i++)
		self.visible.push_back(i);
	while (p && *p) {
		char *end;
		long n = strtol(p, &end, 10);

		if (strncasecmp(p, "GPU-", 4) == 0) {
			n = strtol(p + 4, nullptr, 16) - 0xa0;
			end = const_cast<char *>(p) + strcspn(p, ",");
		}
		if (end == p || n < 0 || n >= self.gpus)
			break;
		self.visible.push_back((int)n);
		p = *end == ',' ? end + 1 : end + strlen(end);
	}
	for (int i = 0; i < DEVICES_MAX; i++)
		self.devices[i].legacy.device = i;
}

static void
begin()
{
	const char *words = getenv("FAKE_CUDA");
	std::istringstream all(words ? words : "");

	if (self.owner)
		return;
	self.owner = getpid();
	for (std::string w; all >> w;)
		read_word(w.c_str());
	find_devices();
}

cudaError_t
error(cudaError_t code)
{
	if (code != cudaSuccess)
		last = code;
	return code;
}

cudaError_t
lost_error()
{
	return error((cudaError_t)self.lost);
}

int
failure(const char *name)
{
	for (Failure &f : self.failures)
		if (f.name == name && f.times != 0 && f.after-- <= 0) {
			f.times -= f.times > 0;
			return f.error;
		}
	return 0;
}

Call::Call(const char *name, Needs needs)
{
	/* CUDA does not outlive fork(); whoever holds the lock does not, either. */
	if (self.owner && self.owner != getpid()) {
		error = fake::error(cudaErrorInitializationError);
		return;
	}
	lock = Lock(self.lock);
	begin();
	self.stalled_calls += needs == DEVICE && self.stalled;
	if (needs == DEVICE)
		self.changed.wait(lock, [] { return !self.stalled; });
	error = needs == NEVER_LOST ? cudaSuccess : lost_error();
	if (error == cudaSuccess && self.visible.empty() && needs == DEVICE)
		error = fake::error(cudaErrorNoDevice);
	if (error == cudaSuccess)
		error = fake::error((cudaError_t)failure(name));
	if (error == cudaSuccess && needs == DEVICE)
		self.devices[current].context = true;
}
} // namespace fake

using namespace fake;

extern "C" {
/* ---- for tests: see ../cudart.h, whose functions of pageable memory and captures are not here
 * ---- */

void
fake_cuda_fail(const char *name, unsigned code, int after, int times)
{
	Call call(__func__, NEVER_LOST);

	self.failures.push_back({name, (int)code, after, times});
}

void
fake_cuda_lose(unsigned code)
{
	Lock lock(self.lock);

	self.lost = (int)code;
	self.changed.notify_all();
}

void
fake_cuda_hold(CUstream_st *s)
{
	Lock lock(self.lock);
	Task task;

	self.held = true;
	task.run = [] {
		Lock l(self.lock);

		self.changed.wait(l, [] { return !self.held || self.lost; });
	};
	enqueue(stream(s), task);
}

void
fake_cuda_release(void)
{
	Lock lock(self.lock);

	self.held = false;
	self.changed.notify_all();
}

void
fake_cuda_stall(int on)
{
	Lock lock(self.lock);

	self.stalled = on;
	self.stalled_calls = 0;
	self.changed.notify_all();
}

int
fake_cuda_stalled(void)
{
	Lock lock(self.lock);

	return self.stalled_calls;
}

void
fake_cuda_enqueue(CUstream_st *s, void (*fn)(void *), void *arg)
{
	Lock lock(self.lock);
	Task task;

	task.run = [=] { fn(arg); };
	enqueue(stream(s), task);
}

void *
fake_cuda_bytes(uint64_t address, size_t n)
{
	Lock lock(self.lock);
	void *p = reinterpret_cast<void *>(address);

	return is_device(p) && is_valid(p, n) ? alias(p) : nullptr;
}

uint64_t
fake_cuda_copied(void)
{
	Lock lock(self.lock);

	return self.copied;
}

unsigned
fake_cuda_contexts(void)
{
	Lock lock(self.lock);
	unsigned all = 0;

	for (int i = 0; i < DEVICES_MAX; i++)
		all |= (unsigned)self.devices[i].context << i;
	return all;
}

int
fake_cuda_live(void)
{
	Lock lock(self.lock);
	size_t n = 0;

	for (Device &d : self.devices)
		n += d.live.size();
	return (int)n;
}

/* ---- for the other fakes ---- */

void *
fake_cuda_alias(const void *p)
{
	return alias(p);
}

int
fake_cuda_is_device(const void *p)
{
	return is_device(p);
}

int
fake_cuda_is_idle(cudaStream_t s)
{
	Lock lock(self.lock);

	return stream(s)->idle();
}

int
fake_cuda_is_lost(void)
{
	Lock lock(self.lock);

	return self.lost;
}

long
fake_cuda_slow_us(const char *op)
{
	Lock lock(self.lock);

	for (Slow &s : self.slow)
		if (s.name == op)
			return s.us;
	return 0;
}

int
fake_cuda_failure(const char *op)
{
	Lock lock(self.lock);

	return failure(op);
}

void
fake_cuda_spin(long us)
{
	Lock lock(self.lock);
	auto is_lost = [] { return self.lost != 0; };

	if (us < 0)
		self.changed.wait(lock, is_lost);
	else
		self.changed.wait_for(lock, std::chrono::microseconds(us), is_lost);
}

/* ---- errors ---- */

cudaError_t
cudaGetLastError(void)
{
	cudaError_t code = self.lost ? (cudaError_t)self.lost : last;

	last = cudaSuccess;
	return code;
}

cudaError_t
cudaPeekAtLastError(void)
{
	return self.lost ? (cudaError_t)self.lost : last;
}

/*  (name, text) */
#define ERRORS(X)                                                                                  \
	X(cudaSuccess, "no error")                                                                 \
	X(cudaErrorInvalidValue, "invalid argument")                                               \
	X(cudaErrorMemoryAllocation, "out of memory")                                              \
	X(cudaErrorInitializationError, "initialization error")                                    \
	X(cudaErrorInsufficientDriver,                                                             \
	    "CUDA driver version is insufficient for CUDA runtime version")                        \
	X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                 \
	X(cudaErrorInvalidDevice, "invalid device ordinal")                                        \
	X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                        \
	X(cudaErrorInvalidResourceHandle, "invalid resource handle")                               \
	X(cudaErrorNotReady, "device not ready")                                                   \
	X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                     \
	X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                     \
	X(cudaErrorAssert, "device-side assert triggered")                                         \
	X(cudaErrorHostMemoryAlreadyRegistered,                                                    \
	    "part or all of the requested memory range is already mapped")                         \
	X(cudaErrorHostMemoryNotRegistered,                                                        \
	    "pointer does not correspond to a registered memory region")                           \
	X(cudaErrorLaunchFailure, "unspecified launch failure")                                    \
	X(cudaErrorNotSupported, "operation not supported")

const char *
cudaGetErrorName(cudaError_t code)
{
#define X(name, text)                                                                              \
	if (code == name)                                                                          \
		return #name;
	ERRORS(X)
#undef X
	return "unrecognized error code";
}

const char *
cudaGetErrorString(cudaError_t code)
{
#define X(name, text)                                                                              \
	if (code == name)                                                                          \
		return text;
	ERRORS(X)
#undef X
	return "unrecognized error code";
}
}
