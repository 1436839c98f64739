/* The rank's thread copies all bytes from and to GPUs, on the fake runtime, and loses no slot when
 * a copy is left, cancelled or fails. The test records what the thread sends. */
#include "check.h"
#include "fake_cuda.h"
#include "../fake/cudart.h"
#include "rank/cuda.h"
#include "rank/cuda_api.h"
#include "rank/rank.h"
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 9 * DEVICE_SLOT + 77, PUSH = 4711 /* its tag */ };

static const uint64_t LIMIT_NS = UINT64_C(60000000000); /* longer than this, and something hangs */

struct rank_queue rank_service;

static struct {
	pthread_mutex_t lock;
	int copies, errors, frees, error_no;
} sent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
	void (*fail)(const char *, unsigned, int, int);
	void (*hold)(struct CUstream_st *);
	void (*release)(void);
	void (*stall)(int);
	int (*stalled)(void);
	uint64_t (*copied)(void);
	void *(*bytes)(uint64_t, size_t);
} fake;

void
rank_link_send(const struct msg *m)
{
	uint32_t no = 0;

	pthread_mutex_lock(&sent.lock);
	sent.copies += m->type == Rcopy;
	sent.errors += m->type == Rerror;
	if (m->type == Rerror && wire_unpack(m, Rerror, NULL, &no, NULL, NULL) == 0)
		sent.error_no = (int)no;
	pthread_mutex_unlock(&sent.lock);
}

void
rank_queue_put(struct rank_queue *q, struct msg *m)
{
	pthread_mutex_lock(&sent.lock);
	sent.frees += q == &rank_service && m->type == Nfree;
	pthread_mutex_unlock(&sent.lock);
}

/* Waits until a counter has this value. */
static void
until(const int *count, int want)
{
	int have;

	do {
		sched_yield();
		pthread_mutex_lock(&sent.lock);
		have = *count;
		pthread_mutex_unlock(&sent.lock);
	} while (have < want);
	CHECK(have == want);
}

static void
open_fake(const char *words)
{
	char *self = realpath("/proc/self/exe", NULL), *library;
	struct err e = {0};
	void *handle;

	memcpy(strstr(self, "/unit/device"), "", 1);
	library = xasprintf("%s/fake/libcudart.so.13", self);
	setenv("DDIP_CUDART", library, 1);
	setenv("FAKE_CUDA", words, 1);
	CHECK(!rank_device_is_open());
	CHECK(rank_device_open("", &e) == 0 && rank_device_open("", &e) == 0);
	CHECK_STR(e.text, "");
	CHECK(rank_device_is_open() && rank_device_memfd() >= 0);
	CHECK(ftruncate(rank_device_memfd(), 0) < 0 && errno == EPERM);
	handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	find_fake(handle, "fake_cuda_fail", &fake.fail);
	find_fake(handle, "fake_cuda_hold", &fake.hold);
	find_fake(handle, "fake_cuda_release", &fake.release);
	find_fake(handle, "fake_cuda_stall", &fake.stall);
	find_fake(handle, "fake_cuda_stalled", &fake.stalled);
	find_fake(handle, "fake_cuda_copied", &fake.copied);
	find_fake(handle, "fake_cuda_bytes", &fake.bytes);
	free(library);
	free(self);
}

/* Asks as a caller does: again if the thread did not get to it in time, as on a busy machine, but
 * not for ever. */
#define AGAIN(question)                                                                            \
	({                                                                                         \
		uint64_t end_ = now_ns() + LIMIT_NS;                                               \
		int r_;                                                                            \
                                                                                                   \
		do                                                                                 \
			r_ = (question);                                                           \
		while (r_ == -EAGAIN && now_ns() < end_);                                          \
		r_;                                                                                \
	})

/* Copies n bytes by rank_device_copy(), which works in pieces, as a caller does. */
static int
copy_all(uint64_t address, char *host, size_t n, uint32_t into, struct err *e)
{
	for (size_t at = 0; at < n;) {
		ssize_t k =
		    rank_device_copy(1, address + at, host + at, n - at, into, into != 0, e);

		if (k < 0)
			return (int)k;
		at += (size_t)k;
	}
	return 0;
}

static void *
copy_thread(void *arg)
{
	char *back = xmalloc(SIZE);
	struct err e = {0};

	CHECK(copy_all((uintptr_t)arg, back, SIZE, 0, &e) == 0);
	CHECK(memcmp(back, fake.bytes((uintptr_t)arg, SIZE), SIZE) == 0);
	free(back);
	return NULL;
}

/* All bytes arrive, in both directions, also when several threads share the slots. */
static void
test_copies(uint64_t address)
{
	char *data = xmalloc(SIZE);
	pthread_t threads[3];
	struct err e = {0};
	uint32_t into;

	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char)(i * 31 >> 3);
	into = rank_pin_add(data, address, SIZE, 1);
	CHECK(copy_all(address, data, SIZE, into, &e) == 0);
	CHECK(rank_pin_drop(into) == data);
	CHECK(memcmp(data, fake.bytes(address, SIZE), SIZE) == 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK(pthread_create(&threads[i], NULL, copy_thread, (void *)(uintptr_t)address) ==
		      0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	free(data);
}

/* A copy that takes long returns 0, so that its caller can leave; its slot is freed later, and its
 * object lives until then. */
static void
test_leaving(uint64_t address)
{
	char *host = xmalloc(SIZE);
	uint32_t pin = rank_pin_add(host, address, SIZE, 1);
	int frees = sent.frees;
	struct err e = {0};

	fake.hold(NULL);
	CHECK(AGAIN(rank_device_mark(1, NULL, &e)) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(rank_device_copy(1, address, host, SIZE, pin, false, &e) == 0);
	CHECK(rank_pin_drop(pin) == NULL);
	fake.release();
	until(&sent.frees, ++frees);
	CHECK(rank_pin_drop(pin) == host);
	CHECK(copy_all(address, host, SIZE, 0, &e) == 0);
	free(host);
}

/* Cancels the push while the device is busy with it. arg: how many bytes had been copied before. */
static void *
cancel_thread(void *arg)
{
	bool runs;

	while (!fake.stalled() && fake.copied() == *(uint64_t *)arg)
		sched_yield();
	CHECK(rank_request_cancel(PUSH, &runs) == NULL && runs);
	return NULL;
}

/* An interrupted push ends, whatever the device does; its object lives until nothing writes to it
 * any more, and the slots are freed. */
static void
test_cancelled_push(uint64_t address)
{
	char *data = xcalloc(1, SIZE);
	int frees = sent.frees;
	struct err e = {0};
	pthread_t thread;
	uint64_t copied;
	uint32_t into;

	for (int stalled = 0; stalled < 2; stalled++) {
		into = rank_pin_add(data, address, SIZE, 1);
		rank_request_main(PUSH, false);
		CHECK(rank_request_begin(PUSH, 1));
		if (stalled)
			fake.stall(1);
		else
			fake.hold(NULL);
		if (!stalled)
			CHECK(AGAIN(rank_device_mark(1, NULL, &e)) == 0);
		copied = fake.copied();
		CHECK(pthread_create(&thread, NULL, cancel_thread, &copied) == 0);
		CHECK(rank_device_copy(1, address, data, SIZE, into, true, &e) == -EINTR);
		CHECK_STR(e.text, "interrupted while it was copied there");
		pthread_join(thread, NULL);
		CHECK(rank_pin_drop(into) == NULL);
		if (stalled)
			fake.stall(0);
		else
			fake.release();
		until(&sent.frees, ++frees);
		CHECK(rank_pin_drop(into) == data);
		CHECK(rank_request_end(PUSH));
		rank_request_forget(PUSH);
	}
	test_copies(address);
	free(data);
}

/* A push fails if any of its pieces fails, whichever thread copies it; the slots are freed. */
static void
test_failing_push(uint64_t address)
{
	char *data = xcalloc(1, SIZE);
	int frees = sent.frees;
	struct err e = {0};
	uint32_t into;

	for (int before = 0; before <= SIZE / DEVICE_SLOT; before++) {
		into = rank_pin_add(data, address, SIZE, 1);
		fake.fail("cudaMemcpyAsync", dcudaErrorMemoryAllocation, before, 1);
		CHECK(rank_device_copy(1, address, data, SIZE, into, true, &e) == -ENOMEM);
		CHECK(strstr(e.text, "cudaMemcpyAsync: ") == e.text);
		if (!rank_pin_drop(into)) { /* a piece was still in flight */
			until(&sent.frees, ++frees);
			CHECK(rank_pin_drop(into) == data);
		}
	}
	test_copies(address);
	free(data);
}

/* A mark that the driver holds up is no longer waited for, but later reads still come behind it. */
static void
test_late_mark(uint64_t address, struct CUstream_st *held)
{
	struct err e = {0};
	int device = 0;
	char byte;

	fake.hold(held);
	fake.stall(1);
	CHECK(
	    rank_device_owner(address, 0, &device, &e) == -EAGAIN); /* the thread is busy with it */
	CHECK(rank_device_mark(1, held, &e) == -EAGAIN);
	fake.stall(0);
	CHECK(rank_device_copy(1, address, &byte, 1, 0, false, &e) == 0);
	fake.release();
	CHECK(copy_all(address, &byte, 1, 0, &e) == 0);
}

/* Work that was in any of a device's streams when it was marked completes before a copy. */
static void
test_marks(uint64_t address)
{
	struct CUstream_st *held = NULL, *others[5] = {NULL};
	char byte;
	struct err e = {0};

	CHECK(cuda_stream_new(&held, &e) == 0);
	fake.hold(held);
	CHECK(AGAIN(rank_device_mark(1, held, &e)) == 0);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		CHECK(cuda_stream_new(&others[i], &e) == 0 &&
		      AGAIN(rank_device_mark(-1, others[i], &e)) == 0);
	CHECK(AGAIN(rank_device_mark(1, NULL, &e)) == 0);
	CHECK(rank_device_copy(1, address, &byte, 1, 0, false, &e) == 0);
	fake.release();
	CHECK(copy_all(address, &byte, 1, 0, &e) == 0);
	test_late_mark(address, held);
	cuda_stream_free(held);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		cuda_stream_free(others[i]);
	CHECK(AGAIN(rank_device_mark(2, NULL, &e)) < 0);
}

static void
ask(uint64_t tag, uint32_t handle, uint64_t offset, uint32_t count, uint64_t to, int want)
{
	struct buf b = {0};
	struct err e = {0};
	struct msg m;

	wire_pack(&b, Tcopy, 0, 0, tag, handle, offset, count, to);
	CHECK(wire_frame(b.p, b.n, &m, NULL) > 0);
	CHECK(rank_device_answer(&m, &e) == want && e.no == -want);
	buf_free(&b);
}

/* Tcopy copies a range to its place; an object is kept until its last copy is done. */
static void
test_answers(uint64_t address)
{
	char *memory = mmap(NULL, (size_t)DEVICE_SLOTS * DEVICE_SLOT, PROT_READ, MAP_SHARED,
	    rank_device_memfd(), 0);
	int object, other;
	uint32_t handle = rank_pin_add(&object, address, SIZE, 1);
	uint32_t host = rank_pin_add(&other, (uintptr_t)&other, sizeof(other), PIN_HOST);
	int frees = sent.frees;
	struct err e = {0};
	char byte;

	ask(1, handle, 100, 50, DEVICE_SLOT + 3, 0);
	until(&sent.copies, 1);
	CHECK(memcmp(memory + DEVICE_SLOT + 3, fake.bytes(address + 100, 50), 50) == 0);
	ask(2, handle, SIZE - 1, 2, 0, -EINVAL);
	ask(3, handle, 0, DEVICE_SLOT, (uint64_t)DEVICE_SLOTS * DEVICE_SLOT - 1, -EINVAL);
	ask(4, handle, 0, DEVICE_SLOT + 1, 0, -EINVAL);
	ask(5, handle + 9, 0, 1, 0, -ESTALE);
	ask(6, host, 0, 1, 0, -EINVAL);
	CHECK(rank_pin_read(handle, 0, &byte, 1, &e) == -EINVAL);
	fake.fail("cudaMemcpyAsync", dcudaErrorMemoryAllocation, 0, 1);
	ask(7, handle, 0, 1, 0, 0);
	until(&sent.errors, 1);
	CHECK(sent.error_no == ENOMEM);
	fake.hold(NULL);
	CHECK(AGAIN(rank_device_mark(1, NULL, &e)) == 0);
	ask(8, handle, 0, 1, 0, 0);
	CHECK(rank_pin_drop(handle) == NULL && sent.frees == frees);
	fake.release();
	until(&sent.frees, ++frees);
	CHECK(rank_pin_drop(handle) == &object && rank_pin_drop(handle) == NULL);
	CHECK(rank_pin_drop(host) == &other);
	munmap(memory, (size_t)DEVICE_SLOTS * DEVICE_SLOT);
}

static void
test_questions(uint64_t address)
{
	enum { PATIENCE_MS = 300 };

	uint64_t unused = 0, total = 0, begin;
	struct err e = {0};
	int device = -1;

	CHECK(AGAIN(rank_device_owner(address + 5, 7, &device, &e)) == 0 && device == 1);
	CHECK(AGAIN(rank_device_owner((uintptr_t)&e, 0, &device, &e)) == -EINVAL);
	CHECK(AGAIN(rank_device_memory(1, &unused, &total, &e)) == 0 && total - unused == SIZE);
	CHECK(AGAIN(rank_device_memory(2, &unused, &total, &e)) < 0);
	CHECK(AGAIN(rank_device_memory(-1, &unused, &total, &e)) == -EINVAL);
	fake.stall(1);
	for (int i = 0; i < 3; i++)
		CHECK(rank_device_owner(address, 0, &device, &e) == -EAGAIN);
	begin = now_ns(); /* this call is not repeated: it leaves a busy machine time to answer */
	CHECK(rank_device_memory(1, &unused, &total, &e) == -EAGAIN);
	CHECK(now_ns() - begin >= (uint64_t)PATIENCE_MS * NS_PER_MS);
	fake.stall(0);
	while (rank_device_owner(address, 0, &device, &e) == -EAGAIN)
		CHECK_STR(e.text, "the driver of the GPU does not answer");
	CHECK(device == 1);
}

/* Where CUDA registers no memory the thread does not block in the driver for marked work. In a
 * process of its own. */
static int
test_unregistered(void)
{
	uint64_t address = 0;
	struct err e = {0};
	int device = -1;
	char byte;

	open_fake("gpus=2 pageable=waits fail=cudaHostRegister:2");
	CHECK(cuda_use(1, &e) == 0 && cuda_alloc(&address, SIZE, &e) == 0);
	fake.hold(NULL);
	CHECK(AGAIN(rank_device_mark(1, NULL, &e)) == 0);
	CHECK(rank_device_copy(1, address, &byte, 1, 0, false, &e) == 0);
	CHECK(AGAIN(rank_device_owner(address, 1, &device, &e)) == 0 && device == 1);
	fake.release();
	test_copies(address);
	return CHECK_DONE();
}

/* A read whose pieces each take longer than one call waits ends all the same, and its slots are
 * free again. In a process of its own. */
static int
test_slow_pieces(void)
{
	uint64_t address = 0, end = now_ns() + LIMIT_NS;
	char *host = xmalloc(SIZE);
	struct err e = {0};
	size_t at = 0;
	ssize_t n = 0;
	uint32_t pin;

	open_fake("gpus=2 delay=100000");
	CHECK(cuda_use(1, &e) == 0 && cuda_alloc(&address, SIZE, &e) == 0);
	memset(fake.bytes(address, SIZE), 5, SIZE);
	pin = rank_pin_add(host, address, SIZE, 1);
	while (at < SIZE && n >= 0 && now_ns() < end) {
		n = rank_device_copy(1, address + at, host + at, SIZE - at, pin, false, &e);
		at += (size_t)MAX(n, 0);
	}
	CHECK(at == SIZE && memcmp(host, fake.bytes(address, SIZE), SIZE) == 0);
	CHECK(fake.copied() == SIZE); /* no piece twice */
	CHECK(rank_pin_drop(pin) == host);
	free(host);
	return CHECK_DONE();
}

static void
in_child(int (*test)(void))
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(test());
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int
main(void)
{
	uint64_t address = 0;
	struct err e = {0};

	in_child(test_unregistered);
	in_child(test_slow_pieces);
	open_fake("gpus=2 delay=50");
	CHECK(cuda_use(1, &e) == 0 && cuda_alloc(&address, SIZE, &e) == 0);
	test_copies(address);
	test_leaving(address);
	test_marks(address);
	test_answers(address);
	test_cancelled_push(address);
	test_failing_push(address);
	test_questions(address);
	cuda_free(address);
	fflush(NULL);
	_exit(CHECK_DONE()); /* the thread keeps running: a leak check would trip over it */
}
