/* Reductions over ranks' parts are right for all types to the last code, with NaN, wrapping, pieces
 * and threads; parts that do not fit together are refused. */
#include "reduce.h"
#include "check.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const struct dtype *
type(const char *name)
{
	return dtype_find((struct slice){name, strlen(name)});
}

/* ---- element types ---- */

/* Converts blocks of numbers in both directions. */
enum { CODES = 65536 };

static void
values_of(const struct dtype *d, const uint16_t *codes, double *values, unsigned n)
{
	static union block to;
	static uint16_t wide[DTYPE_BLOCK];
	uint8_t narrow[DTYPE_BLOCK];

	for (unsigned at = 0; at < n; at += DTYPE_BLOCK) {
		for (unsigned i = 0; i < DTYPE_BLOCK; i++) {
			wide[i] = at + i < n ? codes[at + i] : 0;
			narrow[i] = (uint8_t)wide[i];
		}
		d->load(d, &to, d->size == 1 ? (const void *)narrow : wide);
		memcpy(values + at, to.f, MIN(n - at, (unsigned)DTYPE_BLOCK) * sizeof(*values));
	}
}

static void
codes_of(const struct dtype *d, const double *values, uint16_t *codes, unsigned n)
{
	static union block from;
	static uint16_t wide[DTYPE_BLOCK];
	uint8_t narrow[DTYPE_BLOCK];

	for (unsigned at = 0; at < n; at += DTYPE_BLOCK) {
		unsigned here = MIN(n - at, (unsigned)DTYPE_BLOCK);

		memcpy(from.f, values + at, here * sizeof(*values));
		d->store(d, d->size == 1 ? (void *)narrow : wide, &from);
		for (unsigned i = 0; i < here; i++)
			codes[at + i] = d->size == 1 ? narrow[i] : wide[i];
	}
}

static double
value_of(const struct dtype *d, unsigned code)
{
	double v;

	values_of(d, &(uint16_t){(uint16_t)code}, &v, 1);
	return v;
}

static unsigned
code_of(const struct dtype *d, double v)
{
	uint16_t code;

	codes_of(d, &v, &code, 1);
	return code;
}

/* Every code survives the round trip; a number halfway between two neighbors rounds to the even
 * one, any other to the nearer one. */
static void
check_small(const char *name)
{
	static double value[CODES], middle[CODES], below[CODES], above[CODES];
	static uint16_t code[CODES], back[CODES], at_middle[CODES], at_below[CODES],
	    at_above[CODES];
	const struct dtype *d = type(name);
	unsigned codes = d->size == 1 ? 256 : CODES, wrong = 0;

	for (unsigned c = 0; c < codes; c++)
		code[c] = (uint16_t)c;
	values_of(d, code, value, codes);
	for (unsigned c = 0; c + 1 < codes; c++) {
		middle[c] = (value[c] + value[c + 1]) / 2;
		below[c] = middle[c] + (value[c] - middle[c]) * 1e-9;
		above[c] = middle[c] + (value[c + 1] - middle[c]) * 1e-9;
	}
	codes_of(d, value, back, codes);
	codes_of(d, middle, at_middle, codes);
	codes_of(d, below, at_below, codes);
	codes_of(d, above, at_above, codes);
	for (unsigned c = 0; c + 1 < codes; c++) {
		double v = value[c], next = value[c + 1];

		if (v != v) {
			wrong += back[c] != d->format->nan &&
				 back[c] != (d->format->nan | 1u << (d->format->bits - 1));
			continue;
		}
		wrong += back[c] != c;
		if (isfinite(v) && isfinite(next) && v != next && (v < 0) == (next < 0))
			wrong += at_middle[c] != (c & 1 ? c + 1 : c) || at_below[c] != c ||
				 at_above[c] != c + 1;
	}
	if (wrong)
		printf("%s: %u codes\n", name, wrong);
	CHECK(wrong == 0);
}

static void
check_exponents(void)
{
	const struct dtype *d = type("float8_e8m0fnu");

	for (unsigned c = 0; c < 255; c++)
		CHECK(value_of(d, c) == ldexp(1, (int)c - 127) &&
		      code_of(d, ldexp(1, (int)c - 127)) == c);
	CHECK(isnan(value_of(d, 255)) && code_of(d, NAN) == 255);
	CHECK(code_of(d, 1.4) == 127 && code_of(d, 1.6) == 128);
}

static void
check_overflow(void)
{
	CHECK(isinf(value_of(type("float16"), code_of(type("float16"), 65520))));
	CHECK(value_of(type("float16"), code_of(type("float16"), 65519)) == 65504);
	CHECK(value_of(type("float8_e4m3fn"), code_of(type("float8_e4m3fn"), -448)) == -448);
	CHECK(isnan(value_of(type("float8_e4m3fn"), code_of(type("float8_e4m3fn"), 480))));
	CHECK(isinf(value_of(type("float8_e5m2"), code_of(type("float8_e5m2"), 1e9))));
	CHECK(isnan(value_of(type("float8_e5m2fnuz"), code_of(type("float8_e5m2fnuz"), 1e9))));
	CHECK(code_of(type("float8_e4m3fnuz"), -0.0) == 0);
	CHECK(type("datetime64") == NULL);
}

/* ---- whole operations ---- */

static struct err outcome;

static void
ended(void *arg, const struct err *e)
{
	outcome = *e;
	*(bool *)arg = true;
}

static struct source
memory(const char *p, size_t n)
{
	return (struct source){.kind = SOURCE_MEMORY, .head = p, .head_n = n, .fd = -1};
}

/* Makes a part of this line and these bytes; the caller frees the buffer. */
static struct shard
part(struct buf *b, int rank, const char *line, const void *p, size_t n)
{
	struct shard out;
	struct source s;

	buf_addf(b, "%s\n", line);
	buf_add(b, p, n);
	s = memory(b->p, b->n);
	CHECK(shard_parse(&out, rank, &s, b->n, NULL) == 0);
	return out;
}

/* Finishes and frees a reduction. Returns its line with its bytes behind it, for the caller to
 * free; NULL: outcome has the error. */
static char *
result_of(struct loop *l, struct reduction *r, size_t *line, size_t *size)
{
	struct buf out = {0};
	bool done = false;
	off_t n;

	if (!r)
		return NULL;
	reduce_run(r, l, ended, &done);
	while (!done)
		loop_once(l, -1);
	if (!outcome.no) {
		n = lseek(reduce_result(r), 0, SEEK_END);
		buf_adds(&out, reduce_line(r));
		*line = out.n;
		*size = out.n + (size_t)n;
		CHECK(pread(reduce_result(r), buf_reserve(&out, (size_t)n), (size_t)n, 0) == n);
		out.n += (size_t)n;
	}
	reduce_free(r);
	return out.n ? out.p : NULL;
}

/* Checks that the result is the same if the first ranks, and the others, are first combined on
 * hosts of their own. */
static void
check_by_hosts(struct loop *l, const struct reduce_op *op, const struct shard *parts, int n,
    const char *want, size_t want_size)
{
	for (int first = 1; reduce_by_hosts(slice_text(op->name)) && first < n; first++) {
		size_t line, sizes[2] = {0}, size;
		char *of[2] = {result_of(l, reduce_new_part(op, "x", parts, first, &outcome), &line,
				   &sizes[0]),
		    result_of(l, reduce_new_part(op, "x", parts + first, n - first, &outcome),
			&line, &sizes[1])};
		struct shard hosts[2];
		char *out;

		for (int i = 0; i < 2; i++) {
			struct source s = memory(of[i], sizes[i]);

			CHECK(shard_parse(&hosts[i], i * first, &s, sizes[i], NULL) == 0);
		}
		CHECK(hosts[0].ranks == first && hosts[1].ranks == n - first);
		out = result_of(l, reduce_new(op, "x", hosts, 2, &outcome), &line, &size);
		CHECK(out && size == want_size && memcmp(out, want, size) == 0);
		free(out);
		free(of[0]);
		free(of[1]);
	}
}

/* Returns the bytes of the result (the caller frees them) and its line in *line; NULL: outcome has
 * the error. */
static char *
run(struct loop *l, const struct reduce_op *op, const char *lines[], const void *data[],
    const size_t sizes[], int n, struct buf *line)
{
	struct buf bytes[4] = {{0}};
	struct shard parts[4] = {{0}};
	size_t line_size, size;
	char *out;

	for (int i = 0; i < n; i++)
		parts[i] = part(&bytes[i], i, lines[i], data[i], sizes[i]);
	outcome = (struct err){0};
	out = result_of(l, reduce_new(op, "x", parts, n, &outcome), &line_size, &size);
	if (out) {
		check_by_hosts(l, op, parts, n, out, size);
		buf_clear(line);
		buf_add(line, out, line_size);
		memmove(out, out + line_size, size - line_size);
	}
	for (int i = 0; i < n; i++)
		buf_free(&bytes[i]);
	return out;
}

static void
check_large(struct loop *l)
{
	enum { N = 300001 }; /* several pieces, the last one not a whole block */

	float *a = xcalloc(N, sizeof(*a)), *b = xcalloc(N, sizeof(*b)), *mean;
	const char *lines[] = {"array 4 300001 float32", "array 4 300001 float32"};
	size_t sizes[] = {N * sizeof(*a), N * sizeof(*a)};
	struct buf line = {0};
	int wrong = 0;

	for (int i = 0; i < N; i++) {
		a[i] = (float)i * 0.37f;
		b[i] = (float)(N - i) * 1.7f;
	}
	mean =
	    (float *)(void *)run(l, &reduce_mean, lines, (const void *[]){a, b}, sizes, 2, &line);
	for (int i = 0; mean && i < N; i++)
		wrong += mean[i] != (float)(((double)a[i] + (double)b[i]) / 2);
	CHECK(mean && wrong == 0);
	CHECK_STR(line.p, "mean array 4 300001 float32");
	free(mean);
	mean =
	    (float *)(void *)run(l, &reduce_gather, lines, (const void *[]){a, b}, sizes, 2, &line);
	CHECK(mean && memcmp(mean, a, sizes[0]) == 0 && memcmp(mean + N, b, sizes[0]) == 0);
	CHECK_STR(line.p, "gather array 4 2,300001 float32");
	free(mean);
	free(a);
	free(b);
	buf_free(&line);
}

/* Four ranks, split over two hosts in each way (run()): sums are rounded once, wherever the split
 * is. */
static void
check_four(struct loop *l)
{
	static const char *const types[] = {
	    "float32", "float16", "bfloat16", "complex64", "int16", "uint8", "bool", "int64"};
	static const struct reduce_op *const ops[] = {
	    &reduce_mean, &reduce_sum, &reduce_min, &reduce_max};
	const uint16_t halves[4][8] = {{0x3c01, 0x4202, 0x3f81, 0x7c00, 1, 0, 0x3800, 0x4400},
	    {0x3c03, 0xc202, 0xbf81, 0x3c00, 0, 0, 0x3801, 0x4401},
	    {0x3c05, 0x4204, 0x3f83, 0x3c00, 1, 0, 0x3803, 0x4403},
	    {0x3c07, 0xc205, 0x3f80, 0x3c00, 1, 1, 0x3805, 0x4405}};
	uint8_t yes[4][16];
	const void *data[] = {halves[0], halves[1], halves[2], halves[3]};
	const void *bools[] = {yes[0], yes[1], yes[2], yes[3]};
	struct buf line = {0};

	for (int i = 0; i < 64; i++)
		yes[i / 16][i % 16] = i % 3 == 0;
	for (size_t t = 0; t < ARRAY_LEN(types); t++)
		for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
			const struct dtype *d = type(types[t]);
			size_t width = d->size * d->reals;
			char *one = xasprintf("tensor %zu %zu %s", width, 16 / width, types[t]);
			bool ordered = d->reals == 1 || ops[k]->adds;
			char *out = run(l, ops[k], (const char *[]){one, one, one, one},
			    strcmp(types[t], "bool") == 0 ? bools : data,
			    (const size_t[]){16, 16, 16, 16}, 4, &line);

			CHECK(ordered == (out != NULL));
			free(out);
			free(one);
		}
	buf_free(&line);
}

static void
check_integers(struct loop *l)
{
	const int8_t a[] = {100, -100, 1}, b[] = {100, -100, 2};
	const uint8_t yes[] = {1, 0, 1}, both[] = {1, 1, 0};
	const char *lines[] = {"tensor 1 3 int8", "tensor 1 3 int8"};
	const char *bools[] = {"array 1 3 bool", "array 1 3 bool"};
	const size_t sizes[] = {3, 3};
	struct buf line = {0};
	char *out = run(l, &reduce_sum, lines, (const void *[]){a, b}, sizes, 2, &line);
	double means[3] = {0};
	int64_t counts[3] = {0};

	CHECK(out && out[0] == (char)-56 && out[1] == 56 && out[2] == 3); /* int8 wraps */
	free(out);
	out = run(l, &reduce_mean, lines, (const void *[]){a, b}, sizes, 2, &line);
	CHECK_STR(line.p, "mean tensor 8 3 float64");
	memcpy(means, out, sizeof(means));
	CHECK(means[0] == 100 && means[1] == -100 && means[2] == 1.5);
	free(out);
	out = run(l, &reduce_sum, bools, (const void *[]){yes, both}, sizes, 2, &line);
	CHECK_STR(line.p, "sum array 8 3 int64");
	memcpy(counts, out, sizeof(counts));
	CHECK(counts[0] == 2 && counts[1] == 1 && counts[2] == 1);
	free(out);
	out = run(l, &reduce_min, bools, (const void *[]){yes, both}, sizes, 2, &line);
	CHECK(out && memcmp(out, "\1\0\0", 3) == 0);
	free(out);
	buf_free(&line);
}

static void
check_nan(struct loop *l)
{
	const double a[] = {NAN, 1, -0.0}, b[] = {1, NAN, 2};
	const char *lines[] = {"array 8 3 float64", "array 8 3 float64"};
	const size_t sizes[] = {sizeof(a), sizeof(b)};
	struct buf line = {0};
	double *out =
	    (double *)(void *)run(l, &reduce_max, lines, (const void *[]){a, b}, sizes, 2, &line);

	CHECK(out && isnan(out[0]) && isnan(out[1]) && out[2] == 2);
	free(out);
	buf_free(&line);
}

static void
check_shapes(struct loop *l)
{
	struct buf line = {0};
	const size_t none[] = {0, 0}, ragged[] = {2, 4};
	char *out = run(l, &reduce_sum, (const char *[]){"array 8 0,3 int64", "array 8 0,3 int64"},
	    (const void *[]){"", ""}, none, 2, &line);

	CHECK(out != NULL);
	CHECK_STR(line.p, "sum array 8 0,3 int64");
	free(out);
	out = run(l, &reduce_cat, (const char *[]){"array 1 1,2 int8", "array 1 2,2 int8"},
	    (const void *[]){"ab", "cdef"}, ragged, 2, &line);
	CHECK(out && memcmp(out, "abcdef", 6) == 0);
	CHECK_STR(line.p, "cat array 1 3,2 int8");
	free(out);
	out = run(l, &reduce_mean, (const char *[]){"object 1 2 int", "object 1 4 float"},
	    (const void *[]){"ab", "cdef"}, ragged, 2, &line);
	CHECK(out && memcmp(out, "abcdef", 6) == 0); /* Python numbers: concatenated, for Python */
	CHECK_STR(line.p, "mean object 1 6 int");
	free(out);
	buf_free(&line);
}

static void
check_refusals(struct loop *l)
{
	const size_t sizes[] = {4, 8}, eights[] = {8, 8};
	const void *data[] = {"abcdefgh", "abcdefgh"};
	static char wide[60000];
	char *many;
	struct shard p;
	struct err e = {0};
	struct source s;

	CHECK(!run(l, &reduce_sum, (const char *[]){"array 4 1 int32", "array 4 2 int32"}, data,
	    sizes, 2, NULL));
	CHECK(
	    outcome.no == EOPNOTSUPP && strstr(outcome.text, "rank 1 has array int32 of shape 2"));
	CHECK(!run(l, &reduce_gather, (const char *[]){"array 4 1 int32", "object 1 8 str"}, data,
	    sizes, 2, NULL));
	CHECK(!run(l, &reduce_min, (const char *[]){"array 8 1 complex64", "array 8 1 complex64"},
	    data, eights, 2, NULL));
	CHECK(strstr(outcome.text, "no order") != NULL);
	CHECK(!run(l, &reduce_sum, (const char *[]){"array 8 1 '<M8[D]'", "array 8 1 '<M8[D]'"},
	    data, eights, 2, NULL));
	CHECK(!run(l, &reduce_cat, (const char *[]){"array 8 - int64", "array 8 - int64"}, data,
	    eights, 2, NULL));
	/* elements of another size than their type has; sizes that no number holds */
	CHECK(!run(l, &reduce_cat, (const char *[]){"array 4 1 int32", "array 8 1 int32"}, data,
	    sizes, 2, NULL));
	CHECK(outcome.no == EBADMSG && strstr(outcome.text, "rank 0 have 4 bytes, of rank 1 8"));
	CHECK(!run(l, &reduce_gather, (const char *[]){"object 4 1 str", "object 8 1 str"}, data,
	    sizes, 2, NULL));
	CHECK(!run(l, &reduce_gather,
	    (const char *[]){"array 0 9223372036854775807 '|S0'", "array 8 1 '|S8'"}, data,
	    (const size_t[]){0, 8}, 2, NULL));
	CHECK(!run(l, &reduce_cat,
	    (const char *[]){"array 0 9223372036854775807 '|S0'", "array 8 1 '|S8'"}, data,
	    (const size_t[]){0, 8}, 2, NULL));
	CHECK(outcome.no == EFBIG && strstr(outcome.text, "x.cat has more than"));
	/* 300 MB as one memory, of 5 MB of strings */
	many = xcalloc(5000, 1);
	CHECK(
	    !run(l, &reduce_cat, (const char *[]){"array 1 5000 '|S1'", "array 60000 1 '|S60000'"},
		(const void *[]){many, wide}, (const size_t[]){5000, sizeof(wide)}, 2, NULL));
	CHECK(outcome.no == EFBIG && strstr(outcome.text, "300060000 bytes: read x.cat.npy"));
	free(many);
	s = memory("array 4 0 int32\n", 16);
	CHECK(shard_parse(&p, 3, &s, 3, &e) == -EBADMSG);
	for (const char *const *bad = (const char *const[]){"", "array", "array 4 2 int32",
		 "array 4 2 int32\nabc", "array 4 2,,2 int32\nabcd",
		 "array 4 4611686018427387905 int32\nabcd", "array 1 4294967296,4294967296 int8\n",
		 "array 0 4294967296,4294967296 '|S0'\n", NULL};
	     *bad; bad++) {
		s = memory(*bad, strlen(*bad));
		CHECK(shard_parse(&p, 3, &s, strlen(*bad), &e) == -EBADMSG);
	}
}

int
main(void)
{
	static const char *const small[] = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
	    "float8_e4m3fnuz", "float8_e5m2fnuz"};
	struct loop *l = loop_new();

	CHECK(copy_start(NULL) == 0);
	for (size_t i = 0; i < ARRAY_LEN(small); i++)
		check_small(small[i]);
	check_exponents();
	check_overflow();
	check_large(l);
	check_four(l);
	check_integers(l);
	check_nan(l);
	check_shapes(l);
	check_refusals(l);
	copy_stop();
	loop_free(l);
	return CHECK_DONE();
}
