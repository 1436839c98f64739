/* Memory of devices and of the host, and copies, which must stay within one live allocation. */
#include "runtime.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

namespace fake
{
static const size_t GRAIN = 512;

bool
is_device(const void *p)
{
	uintptr_t at = (uintptr_t)p;

	return at >= BASE && at < BASE + DEVICES_MAX * SPAN;
}

void *
alias(const void *p)
{
	uintptr_t at = (uintptr_t)p;

	return reinterpret_cast<void *>(is_device(p) ? at + ALIAS : at);
}

static Device &
device_of(const void *p)
{
	return self.devices[((uintptr_t)p - BASE) / SPAN];
}

static bool
is_within(const std::map<uintptr_t, size_t> &blocks, const void *p, size_t n)
{
	auto it = blocks.upper_bound((uintptr_t)p);

	if (it == blocks.begin())
		return false;
	--it;
	return (uintptr_t)p + n <= it->first + it->second;
}

bool
is_valid(const void *p, size_t n)
{
	return !is_device(p) || is_within(device_of(p).live, p, n);
}

bool
is_pinned(const void *p, size_t n)
{
	return is_within(self.pinned, p, n);
}

static void
map_device(Device &d)
{
	uintptr_t at = BASE + (uintptr_t)current * SPAN;
	int flags = MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, both = PROT_READ | PROT_WRITE;

	d.fd = memfd_create("fake-cuda", MFD_CLOEXEC);
	if (d.fd < 0 || ftruncate(d.fd, (off_t)self.memory) < 0 ||
	    mmap(reinterpret_cast<void *>(at), self.memory, PROT_NONE, flags, d.fd, 0) ==
		MAP_FAILED ||
	    mmap(reinterpret_cast<void *>(at + ALIAS), self.memory, both, flags, d.fd, 0) ==
		MAP_FAILED) {
		perror("the fake CUDA runtime maps the memory of a device");
		abort();
	}
	d.unused[at] = self.memory;
}

/* The first part that is large enough. */
static cudaError_t
allocate(void **p, size_t n)
{
	Device &d = self.devices[current];

	if (d.fd < 0)
		map_device(d);
	if (n > self.memory)
		return error(cudaErrorMemoryAllocation);
	n = std::max((n + GRAIN - 1) / GRAIN * GRAIN, GRAIN);
	auto it =
	    std::find_if(d.unused.begin(), d.unused.end(), [n](auto &u) { return u.second >= n; });
	if (it == d.unused.end())
		return error(cudaErrorMemoryAllocation);
	auto [at, size] = *it;
	d.unused.erase(it);
	if (size > n)
		d.unused[at + n] = size - n;
	d.live[at] = n;
	d.used += n;
	*p = reinterpret_cast<void *>(at);
	return cudaSuccess;
}

static void
release(Device &d, uintptr_t at, size_t n)
{
	d.live.erase(at);
	d.used -= n;
	fallocate(
	    d.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(at & (SPAN - 1)), (off_t)n);
	auto it = d.unused.emplace(at, n).first;
	auto next = std::next(it);
	if (next != d.unused.end() && it->first + it->second == next->first) {
		it->second += next->second;
		d.unused.erase(next);
	}
	if (it == d.unused.begin())
		return;
	auto before = std::prev(it);
	if (before->first + before->second == it->first) {
		before->second += it->second;
		d.unused.erase(it);
	}
}

static bool
kind_fits(bool to_device, bool from_device, cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return to_device && !from_device;
	case cudaMemcpyDeviceToHost:
		return !to_device && from_device;
	case cudaMemcpyDeviceToDevice:
		return to_device && from_device;
	default:
		return true;
	}
}

/* With memory of the host that is not pinned, a copy to it returns when it is done, and one from it
 * when the bytes are staged. */
static cudaError_t
copy(Lock &lock, void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t st,
    bool waits)
{
	CUstream_st *s = stream(st);
	bool to_device = is_device(to), from_device = is_device(from);
	void *a = alias(to), *b = alias(from);

	if (n == 0)
		return cudaSuccess;
	if (!is_valid(to, n) || !is_valid(from, n) || !kind_fits(to_device, from_device, kind))
		return error(cudaErrorInvalidValue);
	self.copied += n;
	waits = waits || (!to_device && !is_pinned(to, n));
	if (!from_device && !is_pinned(from, n) && !waits && !s->idle()) {
		auto staged = std::make_shared<std::string>((const char *)b, n);

		run_or_enqueue(s, [=] { memcpy(a, staged->data(), n); });
	} else {
		run_or_enqueue(s, [=] { memmove(a, b, n); });
	}
	if (waits)
		drain(lock, s);
	return lost_error();
}
} // namespace fake

using namespace fake;

extern "C" {
cudaError_t
cudaMalloc(void **p, size_t n)
{
	ENTER();
	*p = nullptr;
	return n ? allocate(p, n) : cudaSuccess;
}

/* Waits for all that runs, as the real one does. */
cudaError_t
cudaFree(void *p)
{
	ENTER();
	if (!p)
		return cudaSuccess;
	if (!is_device(p))
		return error(cudaErrorInvalidValue);
	Device &d = device_of(p);
	drain_device(call.lock, (int)(&d - self.devices));
	if (self.lost)
		return lost_error();
	auto it = d.live.find((uintptr_t)p);
	if (it == d.live.end())
		return error(cudaErrorInvalidValue);
	release(d, it->first, it->second);
	return cudaSuccess;
}

cudaError_t
cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
	return cudaMalloc(p, n);
}

cudaError_t
cudaFreeAsync(void *p, cudaStream_t)
{
	return cudaFree(p);
}

cudaError_t
cudaMemGetInfo(size_t *unused, size_t *total)
{
	ENTER();
	*total = self.memory;
	*unused = self.memory - self.devices[current].used;
	return cudaSuccess;
}

cudaError_t
cudaHostAlloc(void **p, size_t n, unsigned)
{
	ENTER();
	n = std::max<size_t>(n, 1);
	*p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*p == MAP_FAILED)
		return error(cudaErrorMemoryAllocation);
	self.pinned[(uintptr_t)*p] = n;
	return cudaSuccess;
}

cudaError_t
cudaFreeHost(void *p)
{
	ENTER();
	auto it = self.pinned.find((uintptr_t)p);
	if (it == self.pinned.end())
		return error(cudaErrorInvalidValue);
	munmap(p, it->second);
	self.pinned.erase(it);
	return cudaSuccess;
}

cudaError_t
cudaHostRegister(void *p, size_t n, unsigned)
{
	ENTER();
	if (!self.pinned.emplace((uintptr_t)p, n).second)
		return error(cudaErrorHostMemoryAlreadyRegistered);
	return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *p)
{
	ENTER();
	return self.pinned.erase((uintptr_t)p) ? cudaSuccess
					       : error(cudaErrorHostMemoryNotRegistered);
}

cudaError_t
cudaPointerGetAttributes(cudaPointerAttributes *to, const void *p)
{
	ENTER();
	*to = {};
	if (is_device(p) && is_valid(p, 1)) {
		to->type = cudaMemoryTypeDevice;
		to->device = (int)(&device_of(p) - self.devices);
		to->devicePointer = const_cast<void *>(p);
		return cudaSuccess;
	}
	to->hostPointer = const_cast<void *>(p);
	to->type = is_pinned(p, 1) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
	to->device = is_pinned(p, 1) ? current : cudaInvalidDeviceId;
	to->devicePointer = is_pinned(p, 1) ? const_cast<void *>(p) : nullptr;
	return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
	ENTER();
	return copy(call.lock, to, from, n, kind, s, false);
}

cudaError_t
cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
	ENTER();
	return copy(call.lock, to, from, n, kind, nullptr, true);
}

cudaError_t
cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t n, cudaStream_t s)
{
	ENTER();
	return copy(call.lock, to, from, n, cudaMemcpyDefault, s, false);
}

/* Waits unless both are on a device. */
cudaError_t
cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
    size_t rows, cudaMemcpyKind, cudaStream_t s)
{
	ENTER();
	char *a = (char *)alias(to), *b = (char *)alias(from);
	run_or_enqueue(stream(s), [=] {
		for (size_t i = 0; i < rows; i++)
			memmove(a + i * to_pitch, b + i * from_pitch, width);
	});
	if (!is_device(to) || !is_device(from))
		drain(call.lock, stream(s));
	return lost_error();
}

cudaError_t
cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s)
{
	ENTER();
	if (!is_valid(p, n))
		return error(cudaErrorInvalidValue);
	run_or_enqueue(stream(s), [=] { memset(alias(p), value, n); });
	return cudaSuccess;
}

cudaError_t
cudaMemset(void *p, int value, size_t n)
{
	return cudaMemsetAsync(p, value, n, nullptr);
}
}
