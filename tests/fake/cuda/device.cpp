/* What devices are, and the part of the driver's interface that torch asks the runtime for. */
#include "runtime.h"
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace fake
{
static const char NAME[] = "Fake H100";
static const int VERSION = 13000;

static bool
exists(int device)
{
	return device >= 0 && device < (int)self.visible.size();
}

/* As tests/fake/nvml.c, so that both agree. */
static void
set_uuid(cudaUUID_t *to, int physical)
{
	memset(to, 0, sizeof(*to));
	to->bytes[3] = (char)(0xa0 + physical);
	to->bytes[6] = 0x40;
	to->bytes[8] = (char)0x80;
	to->bytes[15] = (char)physical;
}

static void
set_limits(cudaDeviceProp *p)
{
	p->warpSize = 32;
	p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
	p->maxThreadsDim[2] = 64;
	p->maxGridSize[0] = 2147483647;
	p->maxGridSize[1] = p->maxGridSize[2] = 65535;
	p->multiProcessorCount = 132;
	p->maxThreadsPerMultiProcessor = 2048;
	p->maxBlocksPerMultiProcessor = 32;
	p->sharedMemPerBlock = 49152;
	p->sharedMemPerBlockOptin = 232448;
	p->sharedMemPerMultiprocessor = 233472;
	p->regsPerBlock = p->regsPerMultiprocessor = 65536;
	p->l2CacheSize = 52428800;
	p->textureAlignment = 512;
	p->memPitch = 2147483647;
}
} // namespace fake

using namespace fake;

extern "C" {
cudaError_t
cudaDriverGetVersion(int *version)
{
	*version = VERSION;
	return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion(int *version)
{
	*version = VERSION;
	return cudaSuccess;
}

/* torch's device guards end the process where this and the next but one fail. */
cudaError_t
cudaGetDeviceCount(int *n)
{
	*n = 0;
	ENTER(fake::NEVER_LOST);
	*n = (int)self.visible.size();
	return *n ? cudaSuccess : error(cudaErrorNoDevice);
}

cudaError_t
cudaSetDevice(int device)
{
	ENTER(fake::NO_DEVICE);
	if (!exists(device))
		return error(self.visible.empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice);
	current = device;
	self.devices[device].context = true;
	return cudaSuccess;
}

cudaError_t
cudaGetDevice(int *device)
{
	ENTER(fake::NEVER_LOST);
	*device = current;
	return self.visible.empty() ? error(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
	ENTER(fake::NO_DEVICE);
	if (!exists(device))
		return error(cudaErrorInvalidDevice);
	*p = {};
	snprintf(p->name, sizeof(p->name), NAME);
	set_uuid(&p->uuid, self.visible[device]);
	set_limits(p);
	p->totalGlobalMem = self.memory;
	p->major = 9;
	p->pciBusID = self.visible[device] + 1;
	p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
	p->canMapHostMemory = p->managedMemory = p->hostRegisterSupported = 1;
	p->asyncEngineCount = 3;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device)
{
	cudaDeviceProp p = {};

	ENTER(fake::NO_DEVICE);
	if (!exists(device))
		return error(cudaErrorInvalidDevice);
	set_limits(&p);
	switch (which) {
	case cudaDevAttrMaxThreadsPerBlock:
		*value = p.maxThreadsPerBlock;
		break;
	case cudaDevAttrMaxSharedMemoryPerBlock:
		*value = (int)p.sharedMemPerBlock;
		break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		*value = (int)p.sharedMemPerBlockOptin;
		break;
	case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
		*value = (int)p.sharedMemPerMultiprocessor;
		break;
	case cudaDevAttrWarpSize:
		*value = p.warpSize;
		break;
	case cudaDevAttrMultiProcessorCount:
		*value = p.multiProcessorCount;
		break;
	case cudaDevAttrMaxThreadsPerMultiProcessor:
		*value = p.maxThreadsPerMultiProcessor;
		break;
	case cudaDevAttrMaxBlocksPerMultiprocessor:
		*value = p.maxBlocksPerMultiProcessor;
		break;
	case cudaDevAttrComputeCapabilityMajor:
		*value = 9;
		break;
	case cudaDevAttrPciBusId:
		*value = self.visible[device] + 1;
		break;
	case cudaDevAttrUnifiedAddressing:
		*value = 1;
		break;
	default:
		*value = 0;
	}
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetPCIBusId(char *to, int size, int device)
{
	ENTER(fake::NEVER_LOST);
	if (!exists(device))
		return error(cudaErrorInvalidDevice);
	snprintf(to, (size_t)size, "0000:%02X:00.0", (unsigned)self.visible[device] + 1);
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER();
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t
cudaDeviceCanAccessPeer(int *can, int, int)
{
	ENTER();
	*can = 1;
	return cudaSuccess;
}

cudaError_t
cudaDeviceEnablePeerAccess(int, unsigned)
{
	ENTER();
	return cudaSuccess;
}

cudaError_t
cudaProfilerStart(void)
{
	return cudaSuccess;
}

cudaError_t
cudaProfilerStop(void)
{
	return cudaSuccess;
}

/* ---- the driver; its header is not used, because the library defines its functions by name ----
 */

typedef int Result;
typedef unsigned long long Address;

enum { ERROR_INVALID = 1, ERROR_DEVICE = 101, ERROR_NOT_SUPPORTED = 801 };

Result cuInit(unsigned flags);
Result cuDriverGetVersion(int *version);
Result cuDeviceGetCount(int *n);
Result cuDeviceGet(int *device, int n);
Result cuDeviceGetName(char *to, int size, int device);
Result cuDeviceGetAttribute(int *value, int which, int device);
Result cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
Result cuDevicePrimaryCtxRetain(void **context, int device);
Result cuCtxGetCurrent(void **context);
Result cuCtxSetCurrent(void *context);
Result cuCtxPushCurrent_v2(void *context);
Result cuCtxPopCurrent_v2(void **context);
Result cuGetErrorString(Result code, const char **text);
Result cuGetErrorName(Result code, const char **name);
Result cuMemGetAddressRange_v2(Address *base, size_t *n, Address p);

Result
cuInit(unsigned)
{
	return 0;
}

Result
cuDriverGetVersion(int *version)
{
	*version = VERSION;
	return 0;
}

Result
cuDeviceGetCount(int *n)
{
	cudaError_t code = cudaGetDeviceCount(n);

	return code == cudaErrorNoDevice ? 0 : code;
}

Result
cuDeviceGet(int *device, int n)
{
	ENTER(fake::NEVER_LOST);
	*device = n;
	return exists(n) ? 0 : ERROR_DEVICE;
}

Result
cuDeviceGetName(char *to, int size, int)
{
	snprintf(to, (size_t)size, NAME);
	return 0;
}

Result
cuDeviceGetAttribute(int *value, int which, int device)
{
	return cudaDeviceGetAttribute(value, (cudaDeviceAttr)which, device);
}

/* A context is the number of its device, from 1. */
Result
cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	ENTER(fake::NEVER_LOST);
	if (flags)
		*flags = 0;
	*active = exists(device) && self.devices[device].context;
	return 0;
}

Result
cuDevicePrimaryCtxRetain(void **context, int device)
{
	ENTER();
	self.devices[device].context = true;
	*context = reinterpret_cast<void *>((intptr_t)device + 1);
	return 0;
}

Result
cuCtxGetCurrent(void **context)
{
	ENTER(fake::NEVER_LOST);
	*context = self.devices[current].context ? reinterpret_cast<void *>((intptr_t)current + 1)
						 : nullptr;
	return 0;
}

Result
cuCtxSetCurrent(void *context)
{
	if (context)
		current = (int)(intptr_t)context - 1;
	return 0;
}

Result
cuCtxPushCurrent_v2(void *context)
{
	return cuCtxSetCurrent(context);
}

Result
cuCtxPopCurrent_v2(void **context)
{
	return cuCtxGetCurrent(context);
}

Result
cuGetErrorString(Result code, const char **text)
{
	*text = cudaGetErrorString((cudaError_t)code);
	return 0;
}

Result
cuGetErrorName(Result code, const char **name)
{
	*name = cudaGetErrorName((cudaError_t)code);
	return 0;
}

Result
cuMemGetAddressRange_v2(Address *base, size_t *n, Address p)
{
	ENTER();
	if (!is_device(reinterpret_cast<void *>(p)))
		return ERROR_INVALID;
	auto &live = self.devices[(p - BASE) / SPAN].live;
	auto it = live.upper_bound(p);
	if (it == live.begin())
		return ERROR_INVALID;
	--it;
	if (base)
		*base = it->first;
	if (n)
		*n = it->second;
	return 0;
}

static Result
not_supported()
{
	return ERROR_NOT_SUPPORTED;
}

/* torch refuses a driver that lacks one of the functions that it looks up here. */
cudaError_t
cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult *result)
{
	static void *own = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
	std::string newest = std::string(name) + "_v2";

	*function = dlsym(own, newest.c_str());
	if (!*function)
		*function = dlsym(own, name);
	if (!*function)
		*function = reinterpret_cast<void *>(not_supported);
	if (result)
		*result = cudaDriverEntryPointSuccess;
	return cudaSuccess;
}
}
