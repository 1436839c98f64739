/* THE TABLE OF TYPES that NCCL combines, and the work on chunks. */
#include "rank/nccl_combine.h"
#include "rank/cuda.h"
#include "rank/nccl_api.h"
#include <errno.h>
#include <math.h>
#include <string.h>

/* How numbers of a type are checked and divided, in place. */
typedef bool check_fn(const void *numbers, size_t n);
typedef void divide_fn(void *numbers, size_t n, int by);

struct combine_type {
	const char *name;
	unsigned nccl;
	size_t size;	   /* of a number, in bytes */
	bool adds, orders; /* supports sums; minima and maxima */
	check_fn *finite;  /* NULL: always finite */
	check_fn *has_nan; /* NULL: never NaN */
	divide_fn *divide; /* NULL: no mean */
};

/* Rank 0's buffers on its GPU: the result, and the sums that reveal a NaN. */
struct buffers {
	uint64_t out, sums;
};

/* ---- the types ---- */

#define FLOAT_FUNCTIONS(type)                                                                      \
	static bool type##_finite(const void *numbers, size_t n)                                   \
	{                                                                                          \
		const type *x = numbers;                                                           \
		bool finite = true;                                                                \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			finite &= isfinite(x[i]) != 0;                                             \
		return finite;                                                                     \
	}                                                                                          \
	static bool type##_has_nan(const void *numbers, size_t n)                                  \
	{                                                                                          \
		const type *x = numbers;                                                           \
		bool has = false;                                                                  \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			has |= x[i] != x[i];                                                       \
		return has;                                                                        \
	}                                                                                          \
	static void type##_divide(void *numbers, size_t n, int by)                                 \
	{                                                                                          \
		type *x = numbers;                                                                 \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			x[i] = (type)((double)x[i] / by);                                          \
	}

FLOAT_FUNCTIONS(float)
FLOAT_FUNCTIONS(double)

/* A 16-bit NaN: all bits of the exponent are set, and at least one of the mantissa. */
static bool
any_above(const void *numbers, size_t n, unsigned infinity)
{
	const uint16_t *x = numbers;
	bool any = false;

	for (size_t i = 0; i < n; i++)
		any |= (x[i] & 0x7fffu) > infinity;
	return any;
}

static bool
half_has_nan(const void *numbers, size_t n)
{
	return any_above(numbers, n, 0x7c00);
}

static bool
brain_has_nan(const void *numbers, size_t n)
{
	return any_above(numbers, n, 0x7f80);
}

/* clang-format off */
#define INTEGER(name, nccl, size) {name, nccl, size, true, true, NULL, NULL, NULL}

/* NCCL has no int16, and no type for the sums of bool. */
static const struct combine_type types[] = {
    INTEGER("int8", dncclInt8, 1),
    INTEGER("uint8", dncclUint8, 1),
    INTEGER("int32", dncclInt32, 4),
    INTEGER("uint32", dncclUint32, 4),
    INTEGER("int64", dncclInt64, 8),
    INTEGER("uint64", dncclUint64, 8),
    {"float16", dncclFloat16, 2, false, true, NULL, half_has_nan, NULL},
    {"bfloat16", dncclBfloat16, 2, false, true, NULL, brain_has_nan, NULL},
    {"float32", dncclFloat32, 4, true, true, float_finite, float_has_nan, float_divide},
    {"float64", dncclFloat64, 8, true, true, double_finite, double_has_nan, double_divide},
    {"complex64", dncclFloat32, 4, true, false, float_finite, float_has_nan, float_divide},
    {"complex128", dncclFloat64, 8, true, false, double_finite, double_has_nan, double_divide},
};

/* clang-format on */

static const struct {
	const char *name;
	enum nccl_op op;
	bool mean;
} ops[] = {{"mean", NCCL_SUM, true}, {"sum", NCCL_SUM, false}, {"min", NCCL_MIN, false},
    {"max", NCCL_MAX, false}};

static bool
can(const struct combine_type *t, enum nccl_op op, bool mean)
{
	return op == NCCL_SUM ? t->adds && (!mean || t->divide) : t->orders;
}

bool
nccl_combine_plan(struct combine *c, const char *op, const char *dtype)
{
	c->type = NULL;
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		if (strcmp(ops[i].name, op) != 0)
			continue;
		c->op = ops[i].op;
		c->mean = ops[i].mean;
		for (size_t k = 0; k < ARRAY_LEN(types); k++)
			if (strcmp(types[k].name, dtype) == 0 && can(&types[k], c->op, c->mean))
				c->type = &types[k];
	}
	return c->type != NULL;
}

uint64_t
nccl_combine_size(const struct combine *c)
{
	return (uint64_t)c->count * c->type->size;
}

/* ---- a chunk ---- */

/* Does detecting NaN need the sums? A minimum or maximum of NCCL may prefer any number to NaN. */
static bool
needs_sums(const struct combine *c)
{
	return c->op != NCCL_SUM && c->type->has_nan;
}

/* Checks the numbers in the staging memory and turns them into means if required. */
static int
finish_numbers(struct nccl_link *l, const struct combine *c, size_t n, struct err *e)
{
	if (c->op == NCCL_SUM && c->type->finite && !c->type->finite(l->staging, n))
		return fail(e, EDOM, "NCCL: a sum of %s is not finite", c->type->name);
	if (c->mean)
		c->type->divide(l->staging, n, l->ranks);
	return 0;
}

/* Copies n bytes from a buffer to the staging memory. */
static int
take(struct nccl_link *l, uint64_t from, size_t n, struct err *e)
{
	int r = cuda_copy_out(l->stream, l->staging, from, n, e);

	return r < 0 ? r : nccl_link_finish(l, e);
}

/* Writes the result of a chunk, of this many bytes, to its place in the file. */
static int
bring(struct nccl_link *l, const struct combine *c, const struct buffers *b, uint64_t place,
    size_t bytes, struct err *e)
{
	size_t size = c->type->size;

	for (size_t at = 0, n; at < bytes; at += n) {
		n = MIN(bytes - at, (size_t)NCCL_STAGING);
		if (b->sums) {
			if (take(l, b->sums + at, n, e) < 0)
				return -e->no;
			if (c->type->has_nan(l->staging, n / size))
				return fail(e, EDOM, "NCCL: there is NaN among the numbers");
		}
		if (take(l, b->out + at, n, e) < 0 || finish_numbers(l, c, n / size, e) < 0)
			return -e->no;
		if (pwrite_all("nccl.write", c->fd, l->staging, n, place + at) < n)
			return fail_errno(e, "NCCL: no room for the result");
	}
	return 0;
}

static int
reduce(struct nccl_link *l, const struct combine *c, enum nccl_op op, const struct nccl_data *d,
    struct err *e)
{
	int r = nccl_reduce(l->comm, l->stream, d, c->type->nccl, op, e);

	return r < 0 ? r : nccl_link_settle(l, e);
}

static int
combine_chunk(struct nccl_link *l, const struct combine *c, const struct buffers *b, size_t first,
    size_t n, struct err *e)
{
	uint64_t place = (uint64_t)first * c->type->size;
	struct nccl_data d = {c->address + place, b->out, n}, sums = d;

	sums.to = b->sums;
	if (reduce(l, c, c->op, &d, e) < 0 ||
	    (needs_sums(c) && reduce(l, c, NCCL_SUM, &sums, e) < 0) || nccl_link_finish(l, e) < 0)
		return -e->no;
	return l->rank == 0 ? bring(l, c, b, place, n * c->type->size, e) : 0;
}

static int
combine(struct nccl_link *l, const struct combine *c, const struct buffers *b, struct err *e)
{
	size_t chunk = COMBINE_CHUNK / c->type->size;

	for (size_t at = 0; at < c->count; at += chunk)
		if (combine_chunk(l, c, b, at, MIN(c->count - at, chunk), e) < 0)
			return -e->no;
	return 0;
}

int
nccl_combine(struct nccl_link *l, const struct combine *c, struct err *e)
{
	struct buffers b = {0};
	size_t size = (size_t)MIN(nccl_combine_size(c), (uint64_t)COMBINE_CHUNK);
	int r = l->comm ? 0 : fail(e, EINVAL, "NCCL: no link");

	if (r == 0 && l->rank == 0)
		r = cuda_alloc(&b.out, size, e);
	if (r == 0 && l->rank == 0 && needs_sums(c))
		r = cuda_alloc(&b.sums, size, e);
	if (r == 0)
		r = combine(l, c, &b, e);
	if (r < 0)
		nccl_link_close(l); /* so that nothing uses the memory any more */
	if (b.sums)
		cuda_free(b.sums);
	if (b.out)
		cuda_free(b.out);
	return r;
}
