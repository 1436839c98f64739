/*
 * Launches of kernels. The only one that can be run is that of torch.cuda._sleep(); operators.cpp
 * does the rest. Whatever else is launched says its name and fails: nothing passes silently.
 */
#include "runtime.h"
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>

namespace fake
{
static const long CYCLES_PER_US = 1000;
static std::map<const void *, std::string> &names = *new std::map<const void *, std::string>;

struct Config {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
};

static thread_local std::vector<Config> *configs; /* of launches that have begun */

static cudaError_t
launch(const void *function, void **args, cudaStream_t s)
{
	const std::string &name = names[function];
	char *readable;
	int status;
	Task task;

	if (name.find("spin_kernel") != std::string::npos) {
		long us = (long)(*(int64_t *)args[0] / CYCLES_PER_US);

		task.run = [us] { fake_cuda_spin(us); };
		enqueue(stream(s), std::move(task));
		return cudaSuccess;
	}
	readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
	fprintf(stderr, "the fake CUDA runtime cannot run the kernel %.300s\n",
	    readable ? readable : name.c_str());
	free(readable);
	return error(cudaErrorNotSupported);
}
} // namespace fake

using namespace fake;

extern "C" {
/* What nvcc's code calls is in no header of the packages that torch brings. */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
char __cudaInitModule(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
    int limit, void *thread, void *block, void *block_dim, void *grid_dim, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
    size_t size, int constant, int global);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s);
cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s);

void **
__cudaRegisterFatBinary(void *)
{
	static void *handle[4];

	return handle;
}

void
__cudaRegisterFatBinaryEnd(void **)
{
}

void
__cudaUnregisterFatBinary(void **)
{
}

char
__cudaInitModule(void **)
{
	return 1;
}

/* This is before any call, so that CUDA is not yet in use by this process. */
void
__cudaRegisterFunction(
    void **, const char *host, char *, const char *name, int, void *, void *, void *, void *, int *)
{
	Lock lock(self.lock);

	names[host] = name;
}

void
__cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int)
{
}

cudaError_t
__cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	*kernel = (cudaKernel_t) const_cast<void *>(host);
	return cudaSuccess;
}

unsigned
__cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s)
{
	if (!configs)
		configs = new std::vector<Config>;
	configs->push_back({grid, block, shared, s});
	return 0;
}

cudaError_t
__cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s)
{
	Config c = configs->back();

	configs->pop_back();
	*grid = c.grid;
	*block = c.block;
	*shared = c.shared;
	*(cudaStream_t *)s = c.stream;
	return cudaSuccess;
}

cudaError_t
cudaLaunchKernel(const void *function, dim3, dim3, void **args, size_t, cudaStream_t s)
{
	ENTER();
	return launch(function, args, s);
}

cudaError_t
__cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void **args, size_t, cudaStream_t s)
{
	ENTER();
	return launch((const void *)kernel, args, s);
}

cudaError_t
cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args)
{
	ENTER();
	return launch(function, args, config->stream);
}

cudaError_t
cudaFuncGetAttributes(cudaFuncAttributes *to, const void *)
{
	ENTER();
	*to = {};
	to->maxThreadsPerBlock = 1024;
	to->binaryVersion = to->ptxVersion = 90;
	to->numRegs = 32;
	return cudaSuccess;
}

cudaError_t
cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
	ENTER();
	return cudaSuccess;
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int, size_t, unsigned)
{
	ENTER();
	*n = 2;
	return cudaSuccess;
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t)
{
	ENTER();
	*n = 2;
	return cudaSuccess;
}
}
