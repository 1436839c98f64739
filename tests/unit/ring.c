/* Reads of an object on a GPU, whose rank shares memory in places, are all answered, and a stuck
 * GPU holds only some of the places. An array stands in for the rank. */
#define _GNU_SOURCE
#include "ring.h"
#include "check.h"
#include "thread.h"
#include "wire.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD = 64, MANY = 50000, PER_GPU = DEVICE_SLOTS / 4, HANDLE = 7 };

static struct loop *loop;
static bool rank_lives;

static struct {
	struct ring_place *place;
	uint64_t offset, to;
	size_t n;
} asked[MANY];

static int asked_count, failed_count, last_errno;
static struct source got[MANY]; /* what reads were answered with */
static int got_count;
static char *memory; /* of the rank whose turn it is */

static int
ask(const struct ring_rank *rank, uint32_t handle, const struct range *x, struct ring_place *p,
    uint64_t to, struct err *e)
{
	CHECK(handle == HANDLE && rank->agent == &loop);
	if (!rank_lives)
		return fail(e, EHOSTDOWN, "the rank is gone");
	asked[asked_count].place = p;
	asked[asked_count].offset = x->offset;
	asked[asked_count].n = x->n;
	asked[asked_count++].to = to;
	return 0;
}

static void
done(struct range *x, const struct source *bytes, const struct err *e)
{
	if (bytes)
		got[got_count++] = *bytes;
	failed_count += !bytes;
	last_errno = bytes ? 0 : e->no;
	x->done = NULL; /* once */
}

static void
copied(int i)
{
	ring_copied(asked[i].place, NULL);
}

/* The bytes of the i-th answer are no longer needed. */
static void
release(int i)
{
	got[i].sent(got[i].sent_arg);
}

static int
memory_of_rank(int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(ftruncate(fd, (off_t)DEVICE_SLOTS * DEVICE_SLOT) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

/* An object of a new rank, or of the last one, on this GPU. */
static struct source
new_object(bool new_rank, unsigned gpu, struct slice head)
{
	static const size_t size = (size_t)DEVICE_SLOTS * DEVICE_SLOT;
	static struct ring_rank rank = {&loop, 0, ask};
	int fd = memory_of_rank(F_SEAL_SHRINK);
	struct source s = {.kind = SOURCE_PROVIDER, .head = head.p, .head_n = head.n, .fd = -1};
	struct err e = {0};

	if (new_rank) {
		rank.slot++;
		if (memory)
			munmap(memory, size);
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	s.provider = ring_provider(loop, &rank, HANDLE, gpu, fd, &e);
	CHECK(s.provider && !e.no);
	close(fd);
	rank_lives = true;
	asked_count = got_count = failed_count = 0;
	return s;
}

static void
begin(const struct source *s, struct range *x, uint64_t offset, size_t n)
{
	*x = (struct range){.done = done};
	source_read(s, x, offset, n);
}

/* Memory that the rank could shrink is refused: it would let the reader die of SIGBUS. */
static void
test_seals(void)
{
	struct ring_rank rank = {&loop, 1000, ask};
	int fd = memory_of_rank(F_SEAL_GROW), small = memfd_create("small", MFD_CLOEXEC);
	struct err e = {0};

	CHECK(!ring_provider(loop, &rank, HANDLE, 0, fd, &e) && e.no == EBADMSG);
	CHECK_STR(e.text, "the rank's memory for copies can be made shorter");
	CHECK(!ring_provider(loop, &rank, HANDLE, 0, small, &e) && e.no == EBADMSG);
	CHECK_STR(e.text, "the rank's memory for copies is too small");
	close(fd);
	close(small);
}

/* The head comes first, then what the rank has copied; no answer is longer than a place. */
static void
test_bytes(void)
{
	static char head[DEVICE_SLOT + HEAD];
	struct source s;
	struct range x;

	memset(head, 'h', sizeof(head));
	s = new_object(true, 0, (struct slice){head, HEAD});
	begin(&s, &x, HEAD - 2, 6);
	CHECK(asked_count == 1 && asked[0].offset == 0 && asked[0].n == 4);
	memcpy(memory + asked[0].to, "body", 4);
	copied(0);
	CHECK(got_count == 1 && got[0].head_n == 6 && memcmp(got[0].head, "hhbody", 6) == 0);
	release(0);
	begin(&s, &x, HEAD + 10, 2 * (size_t)DEVICE_SLOT);
	CHECK(asked[1].offset == 10 && asked[1].n == DEVICE_SLOT);
	ring_copied(asked[1].place, &(struct err){.no = EIO});
	CHECK(got_count == 1 && failed_count == 1 && last_errno == EIO);
	begin(&s, &x, 1, HEAD - 1); /* the head alone */
	CHECK(asked_count == 2 && got_count == 2 && got[1].head_n == HEAD - 1);
	release(1);
	provider_free(s.provider);
	s = new_object(false, 0, (struct slice){head, sizeof(head)});
	begin(&s, &x, 0, sizeof(head));
	CHECK(asked_count == 0 && got_count == 1 && got[0].head_n == DEVICE_SLOT);
	release(0);
	provider_free(s.provider);
	loop_once(loop, 0);
}

/* A read that is cancelled in the queue keeps no reference to its object, which is freed together
 * with its head. */
static void
test_leaving_the_line(void)
{
	char *head = xmalloc(HEAD), second[HEAD] = "head";
	struct source s = new_object(true, 0, (struct slice){head, HEAD});
	struct source other = new_object(false, 0, (struct slice){second, HEAD});
	struct range *x = xcalloc(PER_GPU + 1, sizeof(*x)), last;

	memset(head, 0, HEAD);
	for (int i = 0; i <= PER_GPU; i++)
		begin(&s, &x[i], 0, 2 * HEAD);
	CHECK(asked_count == PER_GPU);
	for (int i = 0; i <= PER_GPU; i++)
		range_cancel(&x[i]);
	free(x);
	provider_free(s.provider);
	free(head);
	begin(&other, &last, 0, 2 * HEAD);
	for (int i = 0; i < PER_GPU; i++)
		copied(i);
	CHECK(asked_count == PER_GPU + 1 && got_count == 0 && failed_count == 0);
	copied(PER_GPU);
	CHECK(got_count == 1 && memcmp(got[0].head, second, HEAD) == 0);
	release(0);
	loop_once(loop, 0);
	provider_free(other.provider);
}

/* Reads that are pending when the object is freed end, those in the queue too; the rank's memory
 * stays until it has copied. */
static void
test_freed(void)
{
	struct source s = new_object(true, 0, (struct slice){"head", 4});
	struct range x[PER_GPU + 2], sent;

	begin(&s, &sent, 0, HEAD);
	copied(0);
	for (int i = 0; i < PER_GPU + 2; i++)
		begin(&s, &x[i], 0, HEAD);
	CHECK(asked_count == PER_GPU);
	provider_free(s.provider);
	CHECK(failed_count == PER_GPU + 2 && last_errno == ECANCELED && got_count == 1);
	for (int i = 1; i < PER_GPU; i++)
		copied(i);
	CHECK(memcmp(got[0].head, "head", 4) == 0);
	release(0);
	loop_once(loop, 0);
	CHECK(asked_count == PER_GPU && failed_count == PER_GPU + 2 && got_count == 1);
}

/* Any number of reads queued for a rank that has died are answered without recursion. */
static void
test_long_line(void)
{
	struct source s = new_object(true, 0, (struct slice){"", 0});
	struct range *x = xcalloc(MANY, sizeof(*x));

	for (int i = 0; i < MANY; i++)
		begin(&s, &x[i], 0, HEAD);
	CHECK(asked_count == PER_GPU && failed_count == 0);
	rank_lives = false;
	for (int i = 0; i < PER_GPU; i++)
		copied(i);
	CHECK(got_count == PER_GPU);
	release(0);
	loop_once(loop, 0);
	CHECK(failed_count == MANY - PER_GPU && last_errno == EHOSTDOWN);
	for (int i = 1; i < PER_GPU; i++)
		release(i);
	provider_free(s.provider);
	loop_once(loop, 0);
	free(x);
}

/* A GPU that is stuck holds only some of the places: another GPU of the rank can still be read. */
static void
test_other_gpu(void)
{
	struct source stuck = new_object(true, 0, (struct slice){"", 0});
	struct source works = new_object(false, 1, (struct slice){"", 0});
	struct range x[DEVICE_SLOTS], one;

	for (int i = 0; i < DEVICE_SLOTS; i++)
		begin(&stuck, &x[i], 0, HEAD);
	for (int i = 0; i < DEVICE_SLOTS; i++)
		range_cancel(&x[i]);
	begin(&works, &one, 0, HEAD);
	CHECK(asked_count == PER_GPU + 1);
	copied(PER_GPU);
	CHECK(got_count == 1);
	release(0);
	for (int i = 0; i < PER_GPU; i++)
		copied(i);
	loop_once(loop, 0);
	CHECK(got_count == 1 && failed_count == 0);
	provider_free(stuck.provider);
	provider_free(works.provider);
}

static void *
release_all(void *arg)
{
	for (int i = 0; i < PER_GPU; i++)
		release(i);
	return NULL;
}

/* Another thread may say that bytes are not needed any more: those who wait get their places. */
static void
test_thread(void)
{
	struct source s = new_object(true, 0, (struct slice){"", 0});
	struct range x[2 * PER_GPU];
	pthread_t thread;

	for (int i = 0; i < 2 * PER_GPU; i++)
		begin(&s, &x[i], 0, HEAD);
	for (int i = 0; i < PER_GPU; i++)
		copied(i);
	CHECK(asked_count == PER_GPU);
	CHECK(thread_start(&thread, release_all, NULL) == 0);
	while (asked_count < 2 * PER_GPU)
		loop_once(loop, -1);
	pthread_join(thread, NULL);
	for (int i = PER_GPU; i < 2 * PER_GPU; i++) {
		copied(i);
		release(i);
	}
	provider_free(s.provider);
	loop_once(loop, 0);
}

int
main(void)
{
	loop = loop_new();
	test_seals();
	test_bytes();
	test_leaving_the_line();
	test_freed();
	test_long_line();
	test_other_gpu();
	test_thread();
	munmap(memory, (size_t)DEVICE_SLOTS * DEVICE_SLOT);
	loop_free(loop);
	return CHECK_DONE();
}
