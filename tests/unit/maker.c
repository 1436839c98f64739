/* What a reduction makes when it is read is, in any range, what it makes at once: for all
 * operations, over the ends of numbers, shares and parts. A part that cannot be read fails the read
 * and nothing else; readers may outlive their owner. */
#include "reduce.h"
#include "check.h"
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, BYTES = 320 << 10, EACH = BYTES + 64 }; /* of a part, with its line */

static char *memory; /* of the ranks, which are one child */
static pid_t child;
static int pidfd;
static struct loop *loop;

/* The ranks' bytes: finite numbers in every type, and each byte another than its neighbours. */
static void
fill_memory(void)
{
	memory = xcalloc(RANKS, EACH);
	for (int i = 0; i < RANKS * EACH; i++)
		memory[i] = (char)(i * 7 % 61 + i / EACH);
}

static void
make_child(void)
{
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	CHECK(child > 0 && pidfd >= 0);
}

static void
kill_child(void)
{
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	close(pidfd);
}

/* Parts of n numbers of this type; that of rank K has K rows more if they may differ. Their heads,
 * and so the lines, are in heads. */
static void
make_parts(struct shard *parts, struct buf *heads, const char *dtype, bool differ)
{
	const struct dtype *d = dtype_find(slice_text(dtype));
	size_t width = d->size * d->reals, n = (BYTES - 1024) / width / 3;

	for (int i = 0; i < RANKS; i++) {
		size_t rows = n + (differ ? (size_t)i : 0);
		struct source s = {.kind = SOURCE_PROCESS, .fd = -1, .pid = child, .pidfd = pidfd};

		buf_addf(&heads[i], "array %zu %zu,3 %s\n", width, rows, dtype);
		s.head = heads[i].p;
		s.head_n = heads[i].n;
		s.size = s.head_n + rows * 3 * width;
		s.addr = (uintptr_t)(memory + (ptrdiff_t)i * EACH);
		CHECK(shard_parse(&parts[i], i, &s, s.size, NULL) == 0);
	}
}

static void
on_end(void *arg, const struct err *e)
{
	*(int *)arg = e->no ? e->no : -1;
}

/* All of the result, made at once; the caller frees it. */
static char *
whole(const struct reduce_op *op, const struct shard *parts, uint64_t *size)
{
	struct reduction *r = reduce_new(op, "x", parts, RANKS, NULL);
	char *p = xmalloc(reduce_size(r));
	int ended = 0;

	*size = reduce_size(r);
	reduce_run(r, loop, on_end, &ended);
	while (!ended)
		loop_once(loop, -1);
	CHECK(ended == -1);
	CHECK(pread(reduce_result(r), p, *size, 0) == (ssize_t)*size);
	reduce_free(r);
	return p;
}

static struct source
source_of(struct maker *m, uint64_t size)
{
	return (struct source){.kind = SOURCE_MAKER,
	    .head = "header",
	    .head_n = 6,
	    .size = 6 + size,
	    .fd = -1,
	    .maker = m};
}

/* Reads around the ends of numbers, of shares and of the whole. */
static void
check_ranges(const struct source *s, const char *want, uint64_t size)
{
	const uint64_t places[] = {0, 1, 7, 8192, 65535, 65536, 65537, BYTES - 1024 - 3, size / 2,
	    size - 1, size, size + 9};
	const size_t lengths[] = {1, 3, 4096, 65537, 200001, BYTES * RANKS * 8};
	char *p = xmalloc(BYTES * RANKS * 8 + 6);

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		for (size_t k = 0; k < ARRAY_LEN(lengths); k++) {
			uint64_t at = places[i];
			size_t n = at < size ? (size_t)MIN(size - at, (uint64_t)lengths[k]) : 0;

			CHECK(source_copy(s, at + 6, p, lengths[k]) == (ssize_t)n);
			CHECK(memcmp(p, want + MIN(at, size), n) == 0);
		}
	CHECK(source_copy(s, 3, p, 103) == 103);
	CHECK(memcmp(p, "der", 3) == 0 && memcmp(p + 3, want, 100) == 0);
	free(p);
}

static void
check_op(const struct reduce_op *op, const char *dtype)
{
	bool joins = op == &reduce_cat;
	struct buf heads[RANKS] = {{0}};
	struct shard parts[RANKS];
	struct reduction *r;
	struct source s;
	uint64_t size;
	int ended = 0;
	char *want;

	make_child();
	make_parts(parts, heads, dtype, joins);
	want = whole(op, parts, &size);
	r = reduce_new(op, "x", parts, RANKS, NULL);
	CHECK(reduce_is_data(r) && reduce_size(r) == size);
	s = source_of(reduce_maker(r, loop, on_end, &ended), size);
	CHECK(reduce_result(r) == -1);
	check_ranges(&s, want, size);
	kill_child();
	CHECK(source_copy(&s, 6, want, size) == -EHOSTDOWN);
	CHECK(source_copy(&s, 6 + size / 2, want, 10) == -EHOSTDOWN);
	CHECK(source_copy(&s, 0, want, 6) == 6);
	CHECK(maker_leave(s.maker) && ended == 0);
	reduce_free(r);
	free(want);
	for (int i = 0; i < RANKS; i++)
		buf_free(&heads[i]);
}

/* Strings of different lengths are padded with zeros to the longest. */
static void
test_padded(const struct reduce_op *op)
{
	enum { COUNT = 9001, LONGEST = 8 };

	static const size_t widths[] = {1, LONGEST, 3};
	struct buf heads[RANKS] = {{0}};
	struct shard parts[RANKS];
	uint64_t size, total = (uint64_t)COUNT * LONGEST * RANKS;
	char *want, *own = xcalloc(total, 1), *at = own;
	struct reduction *r;
	struct source s;
	int ended = 0;

	make_child();
	for (int i = 0; i < RANKS; i++) {
		const char *from = memory + (ptrdiff_t)i * EACH;

		buf_addf(&heads[i], "array %zu %d '|S%zu'\n", widths[i], COUNT, widths[i]);
		s = (struct source){.kind = SOURCE_PROCESS,
		    .head = heads[i].p,
		    .head_n = heads[i].n,
		    .fd = -1,
		    .pid = child,
		    .pidfd = pidfd,
		    .addr = (uintptr_t)from};
		CHECK(shard_parse(&parts[i], i, &s, s.head_n + COUNT * widths[i], NULL) == 0);
		for (int k = 0; k < COUNT; k++, from += widths[i], at += LONGEST)
			memcpy(at, from, widths[i]);
	}
	want = whole(op, parts, &size);
	CHECK(size == total && memcmp(want, own, size) == 0);
	r = reduce_new(op, "x", parts, RANKS, NULL);
	CHECK(strstr(reduce_line(r), " 8 ") && strstr(reduce_line(r), " '|S8'"));
	s = source_of(reduce_maker(r, loop, on_end, &ended), size);
	check_ranges(&s, own, size);
	CHECK(maker_leave(s.maker));
	reduce_free(r);
	kill_child();
	free(want);
	free(own);
	for (int i = 0; i < RANKS; i++)
		buf_free(&heads[i]);
}

/* One part is shorter than it says, as a file that another process has cut. */
static void
test_short_part(const struct reduce_op *op)
{
	struct buf heads[RANKS] = {{0}};
	struct shard parts[RANKS];
	struct reduction *r;
	struct source s;
	int ended = 0, fd = memfd_create("maker", MFD_CLOEXEC);
	char p[10];

	make_child();
	make_parts(parts, heads, "float32", false);
	parts[2].source.kind = SOURCE_FD;
	parts[2].source.fd = fd;
	CHECK(ftruncate(fd, BYTES / 2) == 0);
	r = reduce_new(op, "x", parts, RANKS, NULL);
	s = source_of(reduce_maker(r, loop, on_end, &ended), reduce_size(r));
	CHECK(source_copy(&s, 6, p, sizeof(p)) == sizeof(p));
	CHECK(source_copy(&s, s.size - 10, p, sizeof(p)) == -EHOSTDOWN);
	CHECK(maker_leave(s.maker));
	reduce_free(r);
	kill_child();
	close(fd);
	for (int i = 0; i < RANKS; i++)
		buf_free(&heads[i]);
}

static sem_t copied, go_on;

static void
on_copied(void *arg, const char *p, ssize_t n)
{
	*(ssize_t *)arg = n;
	sem_post(&copied);
	while (sem_wait(&go_on) < 0)
		;
}

/* Its owner leaves while a thread still uses it: it hears of it when the thread is done. */
static void
test_leaving(void)
{
	struct buf heads[RANKS] = {{0}};
	struct shard parts[RANKS];
	struct reduction *r;
	struct source s;
	ssize_t n = 0;
	int ended = 0;

	make_child();
	make_parts(parts, heads, "float32", false);
	r = reduce_new(&reduce_sum, "x", parts, RANKS, NULL);
	s = source_of(reduce_maker(r, loop, on_end, &ended), reduce_size(r));
	copy_later(&s, 0, (size_t)s.size, on_copied, &n);
	while (sem_wait(&copied) < 0)
		;
	CHECK(n == (ssize_t)s.size);
	CHECK(!maker_leave(s.maker) && ended == 0);
	sem_post(&go_on);
	while (!ended)
		loop_once(loop, -1);
	CHECK(ended == -1);
	reduce_free(r);
	kill_child();
	for (int i = 0; i < RANKS; i++)
		buf_free(&heads[i]);
}

int
main(void)
{
	static const struct reduce_op *const ops[] = {
	    &reduce_mean, &reduce_sum, &reduce_min, &reduce_max, &reduce_gather, &reduce_cat};
	static const char *const types[] = {
	    "float32", "bfloat16", "float64", "int8", "uint16", "bool", "float8_e5m2"};

	CHECK(copy_start(NULL) == 0);
	CHECK(sem_init(&copied, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
	loop = loop_new();
	fill_memory();
	for (size_t i = 0; i < ARRAY_LEN(ops); i++)
		for (size_t k = 0; k < ARRAY_LEN(types); k++)
			check_op(ops[i], types[k]);
	check_op(&reduce_sum, "complex64");
	test_short_part(&reduce_sum);
	test_short_part(&reduce_gather);
	test_padded(&reduce_gather);
	test_padded(&reduce_cat);
	test_leaving();
	copy_stop();
	loop_free(loop);
	free(memory);
	return CHECK_DONE();
}
