/*
 * The CUDA runtime and NCCL, on fakes: missing libraries and failing calls are reported, and copies
 * and events keep their order; with $DDIP_TEST_CUDART and $DDIP_TEST_NCCL (NVIDIA's own) also how
 * those fail on a machine without a device.
 */
#include "check.h"
#include "fake_cuda.h"
#include "../fake/cudart.h"
#include "rank/cuda.h"
#include "rank/cuda_api.h"
#include "rank/nccl.h"
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static char *library; /* the fake */

static struct {
	void (*fail)(const char *, unsigned, int, int);
	void (*lose)(unsigned);
	void (*hold)(struct CUstream_st *);
	void (*release)(void);
	void (*capture)(struct CUstream_st *, int, int);
	void *(*bytes)(uint64_t, size_t);
	int (*broken)(void);
	int (*live)(void);
} fake;

static void
open_fake(void)
{
	struct err e = {0};
	void *handle;

	setenv("DDIP_CUDART", library, 1);
	CHECK(cuda_open(NULL, &e) == 0);
	CHECK_STR(e.text, "");
	CHECK_STR(cuda_version(), "CUDA 13.0, libcudart.so.13");
	handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	find_fake(handle, "fake_cuda_fail", &fake.fail);
	find_fake(handle, "fake_cuda_lose", &fake.lose);
	find_fake(handle, "fake_cuda_hold", &fake.hold);
	find_fake(handle, "fake_cuda_release", &fake.release);
	find_fake(handle, "fake_cuda_capture", &fake.capture);
	find_fake(handle, "fake_cuda_bytes", &fake.bytes);
	find_fake(handle, "fake_cuda_broken_captures", &fake.broken);
	find_fake(handle, "fake_cuda_live", &fake.live);
}

static bool
has(const char *text, const char *part)
{
	return strstr(text, part) && !strchr(text, '\n');
}

/* A missing library is reported, each time, and no function of it is called. */
static void
test_missing(void)
{
	static const struct {
		const char *path, *text;
	} rows[] = {
	    {"/nonexistent/libcudart.so", "CUDA: /nonexistent/libcudart.so: cannot open"},
	    {"libm.so.6", "CUDA: libcudart has no cuda"},
	};
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		setenv("DDIP_CUDART", rows[i].path, 1);
		for (int again = 0; again < 2; again++) {
			memset(&e, 0, sizeof(e));
			CHECK(cuda_open(NULL, &e) == -EOPNOTSUPP);
			CHECK(has(e.text, rows[i].text));
		}
		CHECK(!cuda_is_open());
		cuda_close();
	}
	setenv("DDIP_NCCL", "libm.so.6", 1);
	CHECK(nccl_open(NULL, &e) == -EOPNOTSUPP);
	CHECK(has(e.text, "NCCL: libnccl has no nccl"));
	nccl_close();
	setenv("DDIP_NCCL", "/nonexistent/libnccl.so", 1);
	CHECK(nccl_open(NULL, &e) == -EOPNOTSUPP);
	CHECK(has(e.text, "NCCL: /nonexistent/libnccl.so: cannot open"));
	nccl_close();
	unsetenv("DDIP_NCCL");
}

/* A folder of the Python environment takes precedence over the system's folders. */
static void
test_folders(void)
{
	char *folders = xstrdup(library);
	struct err e = {0};

	unsetenv("DDIP_CUDART");
	memcpy(strrchr(folders, '/'), ":", 2);
	CHECK(cuda_open(folders, &e) == 0);
	CHECK_STR(e.text, "");
	cuda_close();
	free(folders);
}

/* Where the driver is too old for one of two runtimes, the other is used; where one is asked for,
 * the error says what to install. */
static void
test_two_runtimes(void)
{
	char dir[] = "/tmp/ddip-unit.XXXXXX", *newer, *older, *folders;
	struct err e = {0};

	CHECK(mkdtemp(dir));
	newer = xasprintf("%s/libcudart.so.13", dir);
	older = xasprintf("%s/libcudart.so.12", dir);
	folders = xasprintf("%s:", dir);
	CHECK(symlink(library, newer) == 0 && symlink(library, older) == 0);
	setenv("FAKE_CUDA", "driver=12", 1);
	CHECK(cuda_open(folders, &e) == 0);
	CHECK_STR(e.text, "");
	CHECK_STR(cuda_version(), "CUDA 12.0, libcudart.so.12");
	cuda_close();
	setenv("DDIP_CUDART", newer, 1);
	CHECK(cuda_open(folders, &e) == -EOPNOTSUPP);
	CHECK_STR(e.text, "CUDA: the runtime is 13.0, and this machine's driver supports 12.0: "
			  "install a newer driver, or a runtime of CUDA 12");
	cuda_close();
	unsetenv("DDIP_CUDART");
	unsetenv("FAKE_CUDA");
	unlink(newer);
	unlink(older);
	rmdir(dir);
	free(newer);
	free(older);
	free(folders);
}

static int
finish(struct CUstream_st *stream, struct err *e)
{
	int r;

	while ((r = cuda_stream_done(stream, e)) == 0)
		sched_yield();
	return r;
}

/* The host cannot read a device's memory, but can read what was copied from it. */
static void
test_copies(void)
{
	char out[5] = "", probe;
	struct iovec local = {&probe, 1}, remote;
	struct CUstream_st *stream = NULL;
	uint64_t address = 0;
	size_t unused, total;
	struct err e = {0};
	int device = -1, n = 0;

	CHECK(cuda_thread_begin(&e) == 0 && cuda_device_count(&n, &e) == 0 && n == 2);
	CHECK(cuda_use(1, &e) == 0 && cuda_alloc(&address, 4096, &e) == 0);
	remote = (struct iovec){(void *)(uintptr_t)address, 1};
	CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0);
	CHECK(cuda_owner(address + 9, &device, &e) == 0 && device == 1);
	CHECK(cuda_memory(&unused, &total, &e) == 0 && total - unused == 4096);
	CHECK_STR(e.text, "");
	CHECK(cuda_owner((uintptr_t)out, &device, &e) == -EINVAL);
	CHECK(has(e.text, "is not memory of a GPU"));
	CHECK(cuda_stream_new(&stream, &e) == 0);
	CHECK(cuda_copy_in(stream, address + 7, "copy", 5, &e) == 0);
	CHECK(cuda_copy_out(stream, out, address + 7, 5, &e) == 0);
	CHECK(finish(stream, &e) == 1);
	CHECK_STR(out, "copy");
	CHECK(cuda_copy_out(stream, out, address + 4092, 5, &e) == -EREMOTEIO);
	CHECK(cuda_use(2, &e) < 0);
	cuda_stream_free(stream);
	cuda_free(address);
	CHECK(fake.live() == 0);
}

/* Work in front of an event completes before work that waits for the event; a capture is not
 * broken. */
static void
test_order(void)
{
	struct CUstream_st *theirs = NULL, *ours = NULL;
	struct CUevent_st *event = NULL;
	uint64_t address = 0;
	char out[4] = "old";
	struct err e = {0};

	CHECK(cuda_use(0, &e) == 0 && cuda_alloc(&address, 4, &e) == 0);
	CHECK(cuda_stream_new(&theirs, &e) == 0 && cuda_stream_new(&ours, &e) == 0);
	CHECK(cuda_event_new(&event, &e) == 0);
	fake.hold(theirs);
	CHECK(cuda_copy_in(theirs, address, "new", 4, &e) == 0);
	CHECK(cuda_event_record(event, theirs, &e) == 0 && cuda_event_done(event, &e) == 0);
	CHECK(cuda_stream_wait(ours, event, &e) == 0);
	CHECK(cuda_copy_out(ours, out, address, 4, &e) == 0);
	CHECK(cuda_stream_done(ours, &e) == 0);
	CHECK_STR(out, "old");
	fake.release();
	CHECK(finish(ours, &e) == 1 && cuda_event_done(event, &e) == 1);
	CHECK_STR(out, "new");
	fake.capture(theirs, 1, 1);
	CHECK(cuda_event_record(event, theirs, &e) == -EAGAIN);
	CHECK(cuda_event_record(event, NULL, &e) == -EAGAIN);
	CHECK(cuda_event_record(event, ours, &e) == 0 && fake.broken() == 0);
	fake.capture(theirs, 0, 0);
	cuda_event_free(event);
	cuda_stream_free(theirs);
	cuda_stream_free(ours);
	cuda_free(address);
}

static int
try_call(const char *name, struct err *e)
{
	struct CUstream_st *stream;
	struct CUevent_st *event;
	uint64_t address;
	size_t a, b;
	int n;

	if (!strcmp(name, "cudaThreadExchangeStreamCaptureMode"))
		return cuda_thread_begin(e);
	if (!strcmp(name, "cudaGetDeviceCount"))
		return cuda_device_count(&n, e);
	if (!strcmp(name, "cudaSetDevice"))
		return cuda_use(0, e);
	if (!strcmp(name, "cudaPointerGetAttributes"))
		return cuda_owner(1, &n, e);
	if (!strcmp(name, "cudaMemGetInfo"))
		return cuda_memory(&a, &b, e);
	if (!strcmp(name, "cudaMalloc"))
		return cuda_alloc(&address, 1, e);
	if (!strcmp(name, "cudaHostRegister"))
		return cuda_register(&n, sizeof(n), e);
	if (!strcmp(name, "cudaStreamCreateWithFlags"))
		return cuda_stream_new(&stream, e);
	if (!strcmp(name, "cudaEventCreateWithFlags"))
		return cuda_event_new(&event, e);
	if (!strcmp(name, "cudaMemcpyAsync"))
		return cuda_copy_out(NULL, &n, 0, 0, e);
	if (!strcmp(name, "cudaStreamQuery"))
		return cuda_stream_done(NULL, e);
	if (!strcmp(name, "cudaStreamIsCapturing"))
		return cuda_event_record(NULL, NULL, e);
	return 1;
}

/* Each failing call reports its name, CUDA's message and the name of the error; then calls work
 * again. */
static void
test_failures(void)
{
	static const char *const names[] = {
#define X(name, type, args, needed) #name,
	    CUDA_CALLS(X)
#undef X
	};

	struct err e;
	int tried = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char *want = xasprintf("%s: out of memory (cudaErrorMemoryAllocation)", names[i]);
		int r;

		memset(&e, 0, sizeof(e));
		fake.fail(names[i], dcudaErrorMemoryAllocation, 0, 1);
		r = try_call(names[i], &e);
		tried += r <= 0;
		CHECK(r == 1 || r == -ENOMEM);
		if (r <= 0)
			CHECK_STR(e.text, want);
		free(want);
	}
	CHECK(tried == 12);
	CHECK(!cuda_is_lost());
	fake.lose(dcudaErrorIllegalAddress);
	CHECK(cuda_use(0, &e) == -EHOSTDOWN && cuda_is_lost());
	CHECK_STR(cuda_lost_text(),
	    "GPU 0: cudaSetDevice: an illegal memory access was encountered "
	    "(cudaErrorIllegalAddress)");
	fake.lose(0);
}

/* Each error after which nothing works any more is recognized; the first one is reported. */
static void
test_lost(void)
{
	static const struct {
		unsigned code;
		const char *name;
	} losses[] = {

#define LOSS(name) {dcuda##name, "cuda" #name}
	    LOSS(ErrorECCUncorrectable),
	    LOSS(ErrorNvlinkUncorrectable),
	    LOSS(ErrorContained),
	    LOSS(ErrorIllegalAddress),
	    LOSS(ErrorLaunchTimeout),
	    LOSS(ErrorAssert),
	    LOSS(ErrorHardwareStackError),
	    LOSS(ErrorIllegalInstruction),
	    LOSS(ErrorMisalignedAddress),
	    LOSS(ErrorInvalidAddressSpace),
	    LOSS(ErrorInvalidPc),
	    LOSS(ErrorLaunchFailure),
	    LOSS(ErrorTensorMemoryLeak),
	    LOSS(ErrorMpsClientTerminated),
	    LOSS(ErrorExternalDevice),
#undef LOSS
	};

	for (size_t i = 0; i < ARRAY_LEN(losses); i++) {
		struct err e = {0};
		size_t free_bytes, total;

		cuda_close();
		open_fake();
		CHECK(cuda_use(1, &e) == 0 && !cuda_is_lost());
		fake.lose(losses[i].code);
		CHECK(cuda_memory(&free_bytes, &total, &e) == -EHOSTDOWN && cuda_is_lost());
		CHECK(has(e.text, losses[i].name));
		fake.lose(dcudaErrorLaunchFailure);
		CHECK(cuda_use(0, &e) == -EHOSTDOWN);
		CHECK(has(cuda_lost_text(), "GPU 1: cudaMemGetInfo: "));
		CHECK(has(cuda_lost_text(), losses[i].name));
		fake.lose(0);
	}
}

/* On a machine without a driver every call reports that. */
static void
test_no_driver(void)
{
	struct err e = {0};
	int n;

	fake.lose(dcudaErrorInsufficientDriver);
	CHECK(cuda_device_count(&n, &e) == -EOPNOTSUPP);
	CHECK_STR(e.text, "cudaGetDeviceCount: CUDA driver version is insufficient for CUDA "
			  "runtime version (cudaErrorInsufficientDriver)");
	fake.lose(0);
}

/* NVIDIA's own libraries load, and without a driver each reports that in one line. */
static void
test_real(const char *cudart, const char *nccl)
{
	struct ncclComm *comm = NULL;
	char id[NCCL_ID_SIZE];
	struct err e = {0};
	int n = 0, r;

	setenv("DDIP_CUDART", cudart, 1);
	setenv("DDIP_NCCL", nccl, 1);
	CHECK(cuda_open(NULL, &e) == 0 && nccl_open(NULL, &e) == 0);
	CHECK_STR(e.text, "");
	CHECK(has(cuda_version(), "CUDA 1") && has(nccl_version(), "NCCL 2."));
	printf("%s, %s\n", cuda_version(), nccl_version());
	if (cuda_device_count(&n, &e) == 0 && n > 0)
		return;
	printf("%s\n", e.text);
	CHECK(has(e.text, "cudaGetDeviceCount: ") && has(e.text, "(cudaError"));
	r = nccl_id(id, &e);
	if (r == 0)
		r = nccl_new(&comm, id, 0, 1, &e);
	while (r == 0 && (r = nccl_state(comm, &e)) == 0)
		sched_yield();
	nccl_abort(comm);
	CHECK(r < 0);
	printf("%s\n", e.text);
	CHECK(has(e.text, "NCCL: nccl"));
}

int
main(void)
{
	const char *cudart = getenv("DDIP_TEST_CUDART"), *nccl = getenv("DDIP_TEST_NCCL");
	char *self = realpath("/proc/self/exe", NULL);

	if (cudart && nccl) {
		test_real(cudart, nccl);
		free(self);
		return CHECK_DONE();
	}
	memcpy(strstr(self, "/unit/cuda"), "", 1);
	library = xasprintf("%s/fake/libcudart.so.13", self);
	test_missing();
	test_folders();
	test_two_runtimes();
	unsetenv("FAKE_CUDA");
	open_fake();
	test_copies();
	test_order();
	test_failures();
	test_lost();
	test_no_driver();
	cuda_close();
	free(library);
	free(self);
	return CHECK_DONE();
}
