/* All calls of the CUDA runtime. Their table is in cuda_api.h. */
#define _GNU_SOURCE
#include "rank/cuda.h"
#include "rank/cuda_api.h"
#include "rank/library.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

static struct {
	pthread_mutex_t lost_lock;
	_Atomic bool lost;
	struct err lost_error;
} self = {.lost_lock = PTHREAD_MUTEX_INITIALIZER};

/* The device that this thread has selected for its calls; -1 if none. */
static _Thread_local int device_in_use = -1;

static struct {
#define X(name, type, args, needed) type(*name) args;
	CUDA_CALLS(X)
#undef X
} api;

static const struct symbol symbols[] = {
#define X(name, type, args, needed) {#name, &api.name, needed},
    CUDA_CALLS(X)
#undef X
};

/* After one of these errors, every call of the process fails. */
static bool
loses_context(unsigned code)
{
	static const unsigned codes[] = {dcudaErrorECCUncorrectable, dcudaErrorNvlinkUncorrectable,
	    dcudaErrorContained, dcudaErrorIllegalAddress, dcudaErrorLaunchTimeout,
	    dcudaErrorAssert, dcudaErrorHardwareStackError, dcudaErrorIllegalInstruction,
	    dcudaErrorMisalignedAddress, dcudaErrorInvalidAddressSpace, dcudaErrorInvalidPc,
	    dcudaErrorLaunchFailure, dcudaErrorTensorMemoryLeak, dcudaErrorMpsClientTerminated,
	    dcudaErrorExternalDevice};

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (codes[i] == code)
			return true;
	return false;
}

static int
errno_of(unsigned code)
{
	if (loses_context(code))
		return EHOSTDOWN;
	switch (code) {
	case dcudaErrorMemoryAllocation:
		return ENOMEM;
	case dcudaErrorInsufficientDriver:
	case dcudaErrorNoDevice:
		return EOPNOTSUPP;
	default:
		return EREMOTEIO;
	}
}

/* Keeps the first error only: it says what happened. */
static void
lose(const char *text)
{
	char device[32] = "";

	if (device_in_use >= 0)
		snprintf(device, sizeof(device), "GPU %d: ", device_in_use);
	pthread_mutex_lock(&self.lost_lock);
	if (!self.lost)
		fail(&self.lost_error, EHOSTDOWN, "%s%s", device, text);
	self.lost = true;
	pthread_mutex_unlock(&self.lost_lock);
}

/* Returns 0, or -errno with the call's error. Clears the thread's last error, which torch reads,
 * too. */
static int
check(const char *what, unsigned code, struct err *e)
{
	struct err own = {0};
	int r;

	if (code == dcudaSuccess)
		return 0;
	api.cudaGetLastError();
	e = e ? e : &own;
	r = fail(e, errno_of(code), "%s: %s (%s)", what, api.cudaGetErrorString(code),
	    api.cudaGetErrorName(code));
	if (loses_context(code))
		lose(e->text);
	return r;
}

#define CALL(e, name, ...) check(#name, api.name(__VA_ARGS__), e)

static int
describe(char *text, size_t size, struct err *e)
{
	Dl_info info;
	void *function;
	int version = 0, driver = 0, r = CALL(e, cudaRuntimeGetVersion, &version);

	if (r == 0)
		r = CALL(e, cudaDriverGetVersion, &driver);
	if (r < 0)
		return r;
	memcpy(&function, &api.cudaRuntimeGetVersion, sizeof(function));
	snprintf(text, size, "CUDA %d.%d, %s", version / 1000, version % 1000 / 10,
	    dladdr(function, &info) ? basename(info.dli_fname) : "libcudart");
	/* A runtime works with a driver of its major version or a later one; 0: no driver. */
	if (driver != 0 && driver / 1000 < version / 1000)
		return fail(e, EOPNOTSUPP,
		    "the runtime is %d.%d, and this machine's driver supports %d.%d: install a "
		    "newer driver, or a runtime of CUDA %d",
		    version / 1000, version % 1000 / 10, driver / 1000, driver % 1000 / 10,
		    driver / 1000);
	return 0;
}

static struct library library = {.title = "CUDA",
    .variable = "DDIP_CUDART",
    .names = names,
    .names_count = ARRAY_LEN(names),
    .symbols = symbols,
    .symbols_count = ARRAY_LEN(symbols),
    .describe = describe,
    .lock = PTHREAD_MUTEX_INITIALIZER};

int
cuda_open(const char *folders, struct err *e)
{
	return library_open(&library, folders, e);
}

bool
cuda_is_open(void)
{
	return library_is_open(&library);
}

void
cuda_close(void)
{
	library_close(&library);
	pthread_mutex_lock(&self.lost_lock);
	self.lost = false;
	pthread_mutex_unlock(&self.lost_lock);
}

const char *
cuda_version(void)
{
	return library.version;
}

bool
cuda_is_lost(void)
{
	return self.lost;
}

const char *
cuda_lost_text(void)
{
	return self.lost ? self.lost_error.text : "";
}

int
cuda_thread_begin(struct err *e)
{
	unsigned mode = dcudaStreamCaptureModeRelaxed;

	return CALL(e, cudaThreadExchangeStreamCaptureMode, &mode);
}

int
cuda_device_count(int *n, struct err *e)
{
	*n = 0;
	return CALL(e, cudaGetDeviceCount, n);
}

int
cuda_device_in_use(void)
{
	int (*state)(int device, unsigned *flags, int *active);
	void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
	unsigned flags;
	int active = 0, device = 0;

	if (!driver)
		return -1;
	*(void **)&state = dlsym(driver, "cuDevicePrimaryCtxGetState");
	while (state && state(device, &flags, &active) == 0 && !active)
		device++;
	dlclose(driver);
	return active ? device : -1;
}

int
cuda_use(int device, struct err *e)
{
	device_in_use = device;
	return CALL(e, cudaSetDevice, device);
}

int
cuda_current(int *device, struct err *e)
{
	return CALL(e, cudaGetDevice, device);
}

int
cuda_owner(uint64_t address, int *device, struct err *e)
{
	struct cuda_attributes found = {0};
	int r = CALL(e, cudaPointerGetAttributes, (struct cudaPointerAttributes *)(void *)&found,
	    (const void *)(uintptr_t)address);

	*device = found.device;
	if (r == 0 && found.type != dcudaMemoryTypeDevice && found.type != dcudaMemoryTypeManaged)
		return fail(
		    e, EINVAL, "0x%llx is not memory of a GPU", (unsigned long long)address);
	return r;
}

int
cuda_memory(size_t *free_bytes, size_t *total, struct err *e)
{
	return CALL(e, cudaMemGetInfo, free_bytes, total);
}

int
cuda_alloc(uint64_t *address, size_t size, struct err *e)
{
	void *p = NULL;
	int r = CALL(e, cudaMalloc, &p, size);

	*address = (uintptr_t)p;
	return r;
}

void
cuda_free(uint64_t address)
{
	CALL(NULL, cudaFree, (void *)(uintptr_t)address);
}

int
cuda_register(void *p, size_t size, struct err *e)
{
	return CALL(e, cudaHostRegister, p, size, dcudaHostRegisterPortable);
}

int
cuda_stream_new(struct CUstream_st **stream, struct err *e)
{
	return CALL(e, cudaStreamCreateWithFlags, stream, dcudaStreamNonBlocking);
}

void
cuda_stream_free(struct CUstream_st *stream)
{
	CALL(NULL, cudaStreamDestroy, stream);
}

/* Returns 1 if done, 0 if not yet, or -errno. */
static int
done(const char *what, unsigned code, struct err *e)
{
	if (code != dcudaErrorNotReady)
		return code == dcudaSuccess ? 1 : check(what, code, e);
	api.cudaGetLastError();
	return 0;
}

int
cuda_stream_done(struct CUstream_st *stream, struct err *e)
{
	return done("cudaStreamQuery", api.cudaStreamQuery(stream), e);
}

int
cuda_stream_wait(struct CUstream_st *stream, struct CUevent_st *event, struct err *e)
{
	return CALL(e, cudaStreamWaitEvent, stream, event, 0);
}

int
cuda_copy_out(struct CUstream_st *stream, void *to, uint64_t from, size_t n, struct err *e)
{
	return CALL(e, cudaMemcpyAsync, to, (const void *)(uintptr_t)from, n,
	    dcudaMemcpyDeviceToHost, stream);
}

int
cuda_copy_in(struct CUstream_st *stream, uint64_t to, const void *from, size_t n, struct err *e)
{
	return CALL(
	    e, cudaMemcpyAsync, (void *)(uintptr_t)to, from, n, dcudaMemcpyHostToDevice, stream);
}

int
cuda_event_new(struct CUevent_st **event, struct err *e)
{
	return CALL(e, cudaEventCreateWithFlags, event, dcudaEventDisableTiming);
}

void
cuda_event_free(struct CUevent_st *event)
{
	CALL(NULL, cudaEventDestroy, event);
}

int
cuda_event_record(struct CUevent_st *event, struct CUstream_st *stream, struct err *e)
{
	unsigned status = dcudaStreamCaptureStatusNone;
	/* For the default stream, while a stream that synchronizes with it is being captured, this
	 * query fails harmlessly; recording would invalidate the capture. */
	unsigned code = api.cudaStreamIsCapturing(stream, &status);

	if (code == dcudaErrorStreamCaptureImplicit ||
	    (code == dcudaSuccess && status != dcudaStreamCaptureStatusNone)) {
		api.cudaGetLastError();
		return fail(e, EAGAIN, "the stream is being captured");
	}
	if (code != dcudaSuccess)
		return check("cudaStreamIsCapturing", code, e);
	return CALL(e, cudaEventRecord, event, stream);
}

int
cuda_event_done(struct CUevent_st *event, struct err *e)
{
	return done("cudaEventQuery", api.cudaEventQuery(event), e);
}
