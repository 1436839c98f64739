/*
 * Ranks combine GPU arrays through NCCL, on the fakes: the result is what the host computes, for
 * each OP and type; cases that NCCL may get wrong are refused, and a failure leaves nothing behind.
 */
#define _GNU_SOURCE
#include "fake_nccl.h"
#include "rank/cuda_api.h"
#include "rank/nccl_api.h"
#include "rank/nccl_combine.h"
#include "reduce.h"
#include <errno.h>
#include <math.h>

/* COUNT: more elements of the smallest type than are staged at once. */
enum { COUNT = NCCL_STAGING + 7, LIMIT_MS = 30 };

static const char *const ops[] = {"mean", "sum", "min", "max"};

/* ---- arrays ---- */

/* The i-th number of a rank. Sums are exact in 16 bits, and those of int8 wrap. */
static int
number(size_t i, int of_rank)
{
	return (int)((i * 7 + (size_t)of_rank * 13) % 200) - 73;
}

/* The same numbers as an array of this dtype. The caller frees it. */
static char *
array_of(const struct dtype *d, size_t count, int of_rank)
{
	size_t blocks = (count + DTYPE_BLOCK - 1) / DTYPE_BLOCK;
	char *all = xmalloc(blocks * DTYPE_BLOCK * d->size);
	static union block b;

	for (size_t at = 0; at < blocks * DTYPE_BLOCK; at += DTYPE_BLOCK) {
		for (size_t i = 0; i < DTYPE_BLOCK; i++) {
			int x = number(at + i, of_rank);

			if (d->kind == KIND_FLOAT)
				b.f[i] = x;
			else
				b.i[i] = x;
		}
		d->store(d, all + at * d->size, &b);
	}
	return all;
}

static void
on_done(void *arg, const struct err *e)
{
	bool *done = arg;

	CHECK(e->no == 0);
	*done = true;
}

/* The reduction of all ranks' arrays by reduce.c; its memfd holds the bytes. */
static struct reduction *
by_host(const struct reduce_op *op, const struct dtype *d, size_t count)
{
	char *line = xasprintf("array %zu %zu %s\n", d->size * d->reals, count / d->reals, d->name);
	struct shard parts[RANKS];
	char *arrays[RANKS];
	struct loop *l = loop_new();
	struct reduction *r;
	struct err e = {0};
	bool done = false;

	for (int i = 0; i < ranks; i++) {
		size_t n = strlen(line), size = count * d->size;
		struct source s = {.kind = SOURCE_MEMORY, .fd = -1, .head_n = n + size};

		arrays[i] = xmalloc(n + size);
		memcpy(arrays[i], line, n);
		s.head = array_of(d, count, i);
		memcpy(arrays[i] + n, s.head, size);
		free((char *)(uintptr_t)s.head);
		s.head = arrays[i];
		CHECK(shard_parse(&parts[i], i, &s, n + size, &e) == 0);
	}
	r = reduce_new(op, "x", parts, ranks, &e);
	CHECK_STR(e.text, "");
	reduce_run(r, l, on_done, &done);
	while (!done)
		loop_once(l, -1);
	for (int i = 0; i < ranks; i++)
		free(arrays[i]);
	loop_free(l);
	free(line);
	return r;
}

static bool
same_bytes(int a, int b, size_t size)
{
	char *x = xmalloc(2 * size);
	bool same = pread(a, x, size, 0) == (ssize_t)size &&
		    pread(b, x + size, size, 0) == (ssize_t)size && !memcmp(x, x + size, size);

	free(x);
	return same;
}

/* ---- links ---- */

static void
open_all(struct nccl_link *l)
{
	struct err e = {0};

	meet();
	if (rank == 0)
		CHECK(nccl_id(shared->id, &e) == 0);
	meet();

	CHECK(nccl_link_open(l, shared->id, rank, ranks, 0, &e) == 0);
	CHECK_STR(e.text, "");
}

static void
close_all(struct nccl_link *l)
{
	meet();
	nccl_link_close(l);
	CHECK(fake.live() == 0 && fake.memory() == 0);
	free(l->staging);
}

/* What this rank contributes; fd is where rank 0 puts the result. */
static struct combine
combination(const char *op, const struct dtype *d, const void *numbers, size_t count)
{
	struct combine c = {.count = count, .fd = rank == 0 ? memfd_create("out", 0) : -1};

	CHECK(nccl_combine_plan(&c, op, d->name));
	c.address = on_gpu(numbers, count * d->size);
	return c;
}

static void
drop(struct combine *c)
{
	cuda_free(c->address);
	if (c->fd >= 0)
		close(c->fd);
}

/* ---- results ---- */

static void
combine_one(struct nccl_link *l, const struct reduce_op *op, const struct dtype *d, size_t count)
{
	char *numbers = array_of(d, count, rank);
	struct combine c = combination(op->name, d, numbers, count);
	struct err e = {0};

	CHECK(nccl_combine(l, &c, &e) == 0);
	CHECK_STR(e.text, "");
	if (rank == 0) {
		struct reduction *r = by_host(op, d, count);

		if (!same_bytes(c.fd, reduce_result(r), count * d->size)) {
			fprintf(stderr, "%s of %s\n", op->name, d->name);
			CHECK(!"NCCL gives what the host gives");
		}
		reduce_free(r);
	}
	drop(&c);
	free(numbers);
}

/* Each OP with each type, over several pieces; one of them over several chunks. */
static void
rank_combines(void)
{
	static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64",
	    "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};

	static const struct reduce_op *const all[] = {
	    &reduce_mean, &reduce_sum, &reduce_min, &reduce_max};
	struct nccl_link l = {0};
	int planned = 0;

	CHECK(copy_start(NULL) == 0);
	open_all(&l);
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (size_t k = 0; k < ARRAY_LEN(all); k++) {
			const struct dtype *d = dtype_find(slice_text(types[i]));
			struct combine c;

			if (!nccl_combine_plan(&c, all[k]->name, d->name))
				continue;
			combine_one(&l, all[k], d, i == 0 ? COUNT : 1002);
			planned++;
		}
	CHECK(planned == 6 * 3 + 2 * 2 + 2 * 4 + 2 * 2);
	combine_one(&l, &reduce_min, dtype_find(slice_text("float32")), COMBINE_CHUNK / 4 + 10);
	close_all(&l);
	copy_stop();
}

/* Results that the host computes in another type are left to it: sums of 16-bit types and of bool,
 * means of integers. */
static void
rank_leaves_to_host(void)
{
	static const char *const others[] = {"bool", "int16", "uint16", "complex32", "float8_e5m2"};
	struct combine c;

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		for (size_t k = 0; k < ARRAY_LEN(ops); k++)
			CHECK(!nccl_combine_plan(&c, ops[k], others[i]));
	CHECK(
	    !nccl_combine_plan(&c, "sum", "float16") && !nccl_combine_plan(&c, "mean", "bfloat16"));
	CHECK(
	    !nccl_combine_plan(&c, "mean", "int64") && !nccl_combine_plan(&c, "max", "complex64"));
	CHECK(!nccl_combine_plan(&c, "gather", "float32"));
}

/* Combines arrays with one odd number, in the last rank's array. Returns rank 0's result, and 0 on
 * the others. */
static int
with_odd(const char *op, const char *type, float usual, float odd)
{
	enum { N = 5000 };
	const struct dtype *d = dtype_find(slice_text(type));
	static float numbers[N];
	struct nccl_link l = {0};
	struct err e = {0};
	struct combine c;
	int r;

	for (size_t i = 0; i < N; i++)
		numbers[i] = usual;
	if (rank == ranks - 1)
		numbers[N / 2 - 1] = odd; /* the last one of 16 bits */
	open_all(&l);
	c = combination(op, d, numbers, N);
	r = nccl_combine(&l, &c, &e);
	meet(); /* a rank that has done its part goes on only when the others have done theirs */
	drop(&c);
	close_all(&l);
	return rank == 0 ? r : 0;
}

static void
rank_refuses_nan(void)
{
	static const char *const which[] = {"min", "max"};

	for (size_t i = 0; i < ARRAY_LEN(which); i++)
		CHECK(with_odd(which[i], "float32", 3, NAN) == (rank == 0 ? -EDOM : 0));
	/* two bfloat16 codes each: 0x7fc0 is NaN, in float16 too */
	CHECK(with_odd("min", "bfloat16", 3, NAN) == (rank == 0 ? -EDOM : 0));
	CHECK(with_odd("max", "float16", 3, NAN) == (rank == 0 ? -EDOM : 0));
	CHECK(with_odd("max", "float32", 3, INFINITY) == 0);
}

/* The mean of these is a finite number, but NCCL's sum is not. */
static void
rank_refuses_overflow(void)
{
	CHECK(with_odd("mean", "float32", 1, 3) == 0);
	CHECK(with_odd("mean", "float32", 2e38f, 2e38f) == (rank == 0 ? -EDOM : 0));
	CHECK(with_odd("sum", "complex64", 1, -INFINITY) == (rank == 0 ? -EDOM : 0));
}

/* ---- failures ---- */

static void
rank_fails(void)
{
	const struct dtype *d = dtype_find(slice_text("float32"));
	static const float numbers[100];
	struct err e = {0};
	struct nccl_link l = {0};
	struct combine c;

	open_all(&l);
	c = combination("min", d, numbers, ARRAY_LEN(numbers));
	fake.fail_cuda("cudaMalloc", dcudaErrorMemoryAllocation, 1, 1); /* the second buffer */
	CHECK(nccl_combine(&l, &c, &e) == -ENOMEM && !l.comm && fake.memory() == 1);
	CHECK(nccl_combine(&l, &c, &e) == -EINVAL);
	nccl_id(shared->id, &e);
	CHECK(nccl_link_open(&l, shared->id, 0, 1, 0, &e) == 0);
	fake.fail("ncclReduce", dncclInternalError, 1, 1); /* the reduction of the sums */
	CHECK(nccl_combine(&l, &c, &e) == -EREMOTEIO && !l.comm && fake.memory() == 1);
	CHECK_STR(e.text, "NCCL: ncclReduce: internal error: ncclReduce was told to fail");
	nccl_id(shared->id, &e);
	CHECK(nccl_link_open(&l, shared->id, 0, 1, 0, &e) == 0);
	close(c.fd);
	CHECK(nccl_combine(&l, &c, &e) == -EBADF && fake.memory() == 1);
	c.fd = -1;
	drop(&c);
	close_all(&l);
}

/* One rank never begins: the others give up after a while. */
static void
rank_waits_in_vain(void)
{
	const struct dtype *d = dtype_find(slice_text("int32"));
	static const int numbers[100];
	struct nccl_link l = {0};
	struct err e = {0};
	struct combine c;

	open_all(&l);
	l.limit_ms =
	    LIMIT_MS; /* only now: the other rank has joined, which may have taken longer */
	c = combination("sum", d, numbers, ARRAY_LEN(numbers));
	if (rank == 0) {
		CHECK(nccl_combine(&l, &c, &e) == -ETIMEDOUT && !l.comm);
		CHECK_STR(e.text, "NCCL: the other ranks did not come in 30 ms");
	}
	drop(&c);
	close_all(&l);
}

int
main(void)
{
	prepare_ranks("/unit/combine");
	run_ranks(1, "", rank_combines);
	run_ranks(2, "", rank_combines);
	run_ranks(3, "", rank_combines);
	run_ranks(1, "", rank_leaves_to_host);
	run_ranks(2, "", rank_refuses_nan);
	run_ranks(2, "", rank_refuses_overflow);
	run_ranks(1, "", rank_fails);
	run_ranks(2, "", rank_waits_in_vain);
	return CHECK_DONE();
}
