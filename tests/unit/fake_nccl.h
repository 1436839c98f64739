/* Shared by tests that use the fake NCCL: the ranks are processes of one test. */
#ifndef FAKE_NCCL_RANKS_H
#define FAKE_NCCL_RANKS_H
#include "check.h"
#include "fake_cuda.h"
#include "../fake/cudart.h"
#include "../fake/nccl.h"
#include "rank/cuda.h"
#include "rank/nccl.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, LOOK_US = 100 };

/* Shared memory of the ranks of a test. */
static struct {
	char id[NCCL_ID_SIZE];
	atomic_int made, over; /* has the id been made; how many ranks have come to meet() */
} * shared;

static int rank, ranks; /* of this process */

static struct {
	void (*fail)(const char *, unsigned, int, int);
	int (*live)(void);
	int (*aborted)(void);
	int (*memory)(void);
	void (*fail_cuda)(const char *, unsigned, int, int);
	void *(*bytes)(uint64_t, size_t);
} fake;

static inline void
open_fakes(void)
{
	const char *cudart = getenv("DDIP_CUDART"), *nccl = getenv("DDIP_NCCL");
	struct err e = {0};
	void *handle;

	CHECK(cuda_open(NULL, &e) == 0 && nccl_open(NULL, &e) == 0);
	CHECK_STR(e.text, "");
	CHECK_STR(nccl_version(), "NCCL 2.28.9");
	handle = dlopen(nccl, RTLD_NOW | RTLD_NOLOAD);
	find_fake(handle, "fake_nccl_fail", &fake.fail);
	find_fake(handle, "fake_nccl_live", &fake.live);
	find_fake(handle, "fake_nccl_aborted", &fake.aborted);
	handle = dlopen(cudart, RTLD_NOW | RTLD_NOLOAD);
	find_fake(handle, "fake_cuda_live", &fake.memory);
	find_fake(handle, "fake_cuda_fail", &fake.fail_cuda);
	find_fake(handle, "fake_cuda_bytes", &fake.bytes);
}

/* Runs fn as each of n ranks; words is the value of $FAKE_NCCL. */
static inline void
run_ranks(int n, const char *words, void (*fn)(void))
{
	pid_t pids[RANKS];
	int status;

	memset(shared, 0, sizeof(*shared));
	setenv("FAKE_NCCL", words, 1);
	for (int i = 0; i < n; i++) {
		fflush(NULL);
		pids[i] = fork();
		if (pids[i] == 0) {
			rank = i;
			ranks = n;
			check_failures = 0;
			open_fakes();
			fn();
			exit(CHECK_DONE());
		}
	}
	for (int i = 0; i < n; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
}

/* The id, which rank 0 makes and the others wait for. */
static inline const char *
the_id(void)
{
	struct err e;

	if (rank == 0) {
		CHECK(nccl_id(shared->id, &e) == 0);
		atomic_store(&shared->made, 1);
	}
	while (!atomic_load(&shared->made))
		sched_yield();
	return shared->id;
}

/* Waits until all ranks are here. */
static inline void
meet(void)
{
	static int met;

	met++;
	atomic_fetch_add(&shared->over, 1);
	while (atomic_load(&shared->over) < met * ranks)
		usleep(LOOK_US);
}

/* Copies to the current device. Returns the address. */
static inline uint64_t
on_gpu(const void *p, size_t size)
{
	uint64_t address = 0;
	struct err e = {0};

	CHECK(cuda_alloc(&address, size, &e) == 0);
	memcpy(fake.bytes(address, size), p, size);
	return address;
}

/* Call first in main(). program: the end of this program's path. */
static inline void
prepare_ranks(const char *program)
{
	char *self = realpath("/proc/self/exe", NULL), *path;

	memcpy(strstr(self, program), "", 1);
	path = xasprintf("%s/fake/libcudart.so.13", self);
	setenv("DDIP_CUDART", path, 1);
	free(path);
	path = xasprintf("%s/fake/libnccl.so.2", self);
	setenv("DDIP_NCCL", path, 1);
	free(path);
	free(self);
	unsetenv("FAKE_CUDA");
	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

#endif
