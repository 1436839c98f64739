/*
 * A CUDA runtime for the tests: devices whose memory the host cannot read, streams as queues with a
 * thread each, events. It implements the calls of engine/rank/cuda_api.h, and tests can make them
 * fail (cudart.h). Words of $FAKE_CUDA, separated by blanks:
 *   gpus=2      number of devices     delay=300   each copy takes this many microseconds longer
 *   pageable=waits a copy with unregistered host memory returns only when it is done
 *   driver=none there is no driver; driver=12: it supports CUDA 12.0
 *   fail=CALL:ERROR[:AFTER[:TIMES]] as fake_cuda_fail()
 */
#include "cudart_inside.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t MEMORY = (size_t)1 << 30; /* bytes per device */

struct state fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .gpus = 2,
    .driver = 13000,
    .legacy.tasks = STAILQ_HEAD_INITIALIZER(fake.legacy.tasks)};

bool fake_stalled, fake_waits;
int fake_stalled_calls;
__thread int fake_device;
__thread unsigned fake_result;
static __thread bool relaxed;

void
fake_lock(void)
{
	pthread_mutex_lock(&fake.lock);
}

void
fake_unlock(void)
{
	pthread_mutex_unlock(&fake.lock);
}

void
fake_add_failure(const char *call, size_t n, unsigned error, int after, int times)
{
	struct failure *f = &fake.failures[fake.failure_count % FAILURES_MAX];

	fake.failure_count++;
	*f = (struct failure){.error = error, .after = after, .times = times};
	memcpy(f->call, call, n < sizeof(f->call) ? n : sizeof(f->call) - 1);
}

void
fake_read_words(void)
{
	const char *all = getenv("FAKE_CUDA");
	char *copy = strdup(all ? all : ""), *rest = NULL;

	fake.read = true;
	for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
		unsigned error;
		int after = 0, times = -1, n = 0;

		if (strncmp(w, "gpus=", 5) == 0)
			fake.gpus = atoi(w + 5);
		else if (strncmp(w, "delay=", 6) == 0)
			fake.delay = (useconds_t)atoi(w + 6);
		else if (strcmp(w, "pageable=waits") == 0)
			fake_waits = true;
		else if (strncmp(w, "driver=", 7) == 0)
			fake.driver = atoi(w + 7) * 1000;
		else if (sscanf(w, "fail=%*[^:]%n:%u:%d:%d", &n, &error, &after, &times) >= 1)
			fake_add_failure(w + 5, (size_t)n - 5, error, after, times);
	}
	free(copy);
}

/* As the file's name says: libcudart.so.12 is CUDA 12.0. */
static int
runtime_version(void)
{
	Dl_info info;

	dladdr(&fake, &info);
	return atoi(strrchr(info.dli_fname, '.') + 1) * 1000;
}

unsigned
fake_say(const char *call, bool device)
{
	if (!fake.read)
		fake_read_words();
	fake_stalled_calls += device && fake_stalled;
	while (device && fake_stalled)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake_result = fake.lost;
	if (!fake_result && fake.driver < runtime_version())
		fake_result = dcudaErrorInsufficientDriver;
	else if (!fake_result && fake.gpus == 0 && device)
		fake_result = dcudaErrorNoDevice;
	for (int i = 0; i < FAILURES_MAX && !fake_result; i++) {
		struct failure *f = &fake.failures[i];

		if (strcmp(f->call, call) != 0 || f->times == 0 || f->after-- > 0)
			continue;
		f->times -= f->times > 0;
		fake_result = f->error;
	}
	if (!fake_result && device)
		fake.contexts |= 1u << fake_device;
	return fake_result;
}

struct block *
fake_block(const void *p, size_t n)
{
	const char *at = p;

	for (struct block *b = fake.blocks; b; b = b->next)
		if (at >= b->address && at + n <= b->address + b->size)
			return b;
	return NULL;
}

void *
fake_bytes(const void *p, size_t n)
{
	struct block *b = fake_block(p, n);

	return b ? b->bytes + ((const char *)p - b->address) : NULL;
}

/* ---- memory ---- */

/* Free bytes of the current device. Call with the lock held. */
static size_t
room(void)
{
	size_t n = MEMORY;

	for (struct block *b = fake.blocks; b; b = b->next)
		n -= b->device == fake_device ? b->size : 0;
	return n;
}

unsigned
cudaMalloc(void **p, size_t size)
{
	struct block *b;
	int fd;

	fake_lock();
	if (fake_say(__func__, true) == 0 && size > room())
		fake_result = dcudaErrorMemoryAllocation;
	if (fake_result == 0) {
		b = malloc(sizeof(*b));
		fd = memfd_create("fake-cuda", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
			abort();
		*b = (struct block){.size = size, .device = fake_device, .next = fake.blocks};
		b->address = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
		b->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		if (b->address == MAP_FAILED || b->bytes == MAP_FAILED)
			abort();
		fake.blocks = b;
		fake.live++;
		*p = b->address;
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaFree(void *p)
{
	fake_lock();
	if (fake_say(__func__, true) == 0 && p) {
		struct block **at = &fake.blocks, *b;

		while (*at && (*at)->address != p)
			at = &(*at)->next;
		b = *at;
		if (b) {
			*at = b->next;
			munmap(b->address, b->size);
			munmap(b->bytes, b->size);
			free(b);
			fake.live--;
		} else {
			fake_result = dcudaErrorInvalidValue;
		}
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaHostRegister(void *p, size_t size, unsigned flags)
{
	fake_lock();
	if (fake_say(__func__, true) == 0) {
		fake.host[fake.host_count % HOST_MAX].p = p;
		fake.host[fake.host_count++ % HOST_MAX].n = size;
	}
	fake_unlock();
	return fake_result;
}

static bool
is_registered(const void *p, size_t n)
{
	const char *at = p;

	for (int i = 0; i < HOST_MAX; i++)
		if (fake.host[i].p && at >= fake.host[i].p &&
		    at + n <= fake.host[i].p + fake.host[i].n)
			return true;
	return false;
}

unsigned
cudaMemcpyAsync(void *to, const void *from, size_t n, unsigned kind, struct CUstream_st *stream)
{
	bool out = kind == dcudaMemcpyDeviceToHost;
	void *device;

	fake_lock();
	if (fake_say(__func__, true) == 0) {
		device = fake_bytes(out ? from : to, n);
		if (!device || (!out && kind != dcudaMemcpyHostToDevice)) {
			fake_result = dcudaErrorInvalidValue;
		} else {
			fake.pageable += !is_registered(out ? to : from, n) || !stream;
			fake.copied += n;
			fake_enqueue(stream,
			    (struct task){
				.to = out ? to : device, .from = out ? device : from, .n = n});
			while (fake_waits && !is_registered(out ? to : from, n) &&
			       (stream->busy || !STAILQ_EMPTY(&stream->tasks)))
				pthread_cond_wait(&fake.changed, &fake.lock);
		}
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaPointerGetAttributes(struct cudaPointerAttributes *to, const void *p)
{
	struct cuda_attributes *a = (struct cuda_attributes *)(void *)to;
	struct block *b;

	fake_lock();
	if (fake_say(__func__, true) == 0) {
		b = fake_block(p, 1);
		a->type = b ? dcudaMemoryTypeDevice : 0;
		a->device = b ? b->device : -2;
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	fake_lock();
	fake_say(__func__, true);
	*total = MEMORY;
	*free_bytes = room();
	fake_unlock();
	return fake_result;
}

/* ---- the rest ---- */

unsigned
cudaRuntimeGetVersion(int *version)
{
	*version = runtime_version();
	return dcudaSuccess;
}

unsigned
cudaDriverGetVersion(int *version)
{
	fake_lock();
	if (!fake.read)
		fake_read_words();
	*version = fake.driver;
	fake_unlock();
	return dcudaSuccess;
}

const char *
cudaGetErrorName(unsigned error)
{
#define X(name, value)                                                                             \
	if (strncmp(#name, "cudaError", 9) == 0 && error == (value))                               \
		return #name;
	CUDA_VALUES(X)
#undef X
	return "cudaErrorUnknown";
}

const char *
cudaGetErrorString(unsigned error)
{
	switch (error) {
	case dcudaErrorMemoryAllocation:
		return "out of memory";
	case dcudaErrorInsufficientDriver:
		return "CUDA driver version is insufficient for CUDA runtime version";
	case dcudaErrorNoDevice:
		return "no CUDA-capable device is detected";
	case dcudaErrorIllegalAddress:
		return "an illegal memory access was encountered";
	case dcudaErrorAssert:
		return "device-side assert triggered";
	}
	return "unknown error";
}

unsigned
cudaGetLastError(void)
{
	unsigned error = fake_result;

	fake_result = 0;
	return error;
}

unsigned
cudaGetDeviceCount(int *n)
{
	fake_lock();
	if (fake_say(__func__, false) == 0)
		*n = fake.gpus;
	if (!fake_result && fake.gpus == 0)
		fake_result = dcudaErrorNoDevice;
	fake_unlock();
	return fake_result;
}

unsigned
cudaSetDevice(int device)
{
	fake_lock();
	if (fake_say(__func__, false) == 0) {
		if (device < 0 || device >= fake.gpus)
			fake_result = dcudaErrorInvalidDevice;
		else
			fake.contexts |= 1u << (fake_device = device);
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaGetDevice(int *device)
{
	*device = fake_device;
	return dcudaSuccess;
}

unsigned
cudaThreadExchangeStreamCaptureMode(unsigned *mode)
{
	bool was = relaxed;

	fake_lock();
	if (fake_say(__func__, true) == 0) {
		relaxed = *mode == dcudaStreamCaptureModeRelaxed;
		*mode = was ? dcudaStreamCaptureModeRelaxed : 0;
	}
	fake_unlock();
	return fake_result;
}
