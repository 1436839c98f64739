/* The table of array element types, and conversions of blocks. Knows nothing about ranks. */
#include "dtype.h"
#include <pthread.h>
#include <string.h>

/* ---- types that the machine supports itself ---- */

#define MACHINE_TYPE(name, type, member)                                                           \
	static void load_##name(                                                                   \
	    const struct dtype *d, union block *restrict to, const void *restrict from)            \
	{                                                                                          \
		const type *x = from;                                                              \
                                                                                                   \
		for (int i = 0; i < DTYPE_BLOCK; i++)                                              \
			to->member[i] = x[i];                                                      \
	}                                                                                          \
	static void store_##name(                                                                  \
	    const struct dtype *d, void *restrict to, const union block *restrict from)            \
	{                                                                                          \
		type *y = to;                                                                      \
                                                                                                   \
		for (int i = 0; i < DTYPE_BLOCK; i++)                                              \
			y[i] = (type)from->member[i];                                              \
	}

MACHINE_TYPE(int8, int8_t, i)
MACHINE_TYPE(int16, int16_t, i)
MACHINE_TYPE(int32, int32_t, i)
MACHINE_TYPE(int64, int64_t, i)
MACHINE_TYPE(uint8, uint8_t, u)
MACHINE_TYPE(uint16, uint16_t, u)
MACHINE_TYPE(uint32, uint32_t, u)
MACHINE_TYPE(uint64, uint64_t, u)
MACHINE_TYPE(float32, float, f)
MACHINE_TYPE(float64, double, f)

static void
load_bool(const struct dtype *d, union block *restrict to, const void *restrict from)
{
	const uint8_t *x = from;

	for (int i = 0; i < DTYPE_BLOCK; i++)
		to->u[i] = x[i] != 0;
}

/* ---- small floating-point types ---- */

static uint64_t
bits_of(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static double
of_bits(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

static double
power_of_two(int e)
{
	return of_bits((uint64_t)(e + 1023) << 52);
}

static double
decode(const struct dtype_format *f, unsigned code)
{
	unsigned sign = code >> (f->bits - 1), rest = code & ((1u << (f->bits - 1)) - 1);
	unsigned exponent = rest >> f->mantissa, low = rest & ((1u << f->mantissa) - 1);
	double v;

	if (f->unsigned_zero ? code == f->nan : rest > f->max)
		v = rest == f->over && f->over != f->nan ? __builtin_inf() : __builtin_nan("");
	else if (exponent == 0)
		v = low * power_of_two(1 - f->bias - (int)f->mantissa);
	else
		v = (low + (1u << f->mantissa)) *
		    power_of_two((int)exponent - f->bias - (int)f->mantissa);
	return sign ? -v : v;
}

static unsigned
encode(const struct dtype_format *f, double v)
{
	uint64_t bits = bits_of(v), u = bits << 1 >> 1;
	unsigned sign = (unsigned)(bits >> 63) << (f->bits - 1), code, shift = 52 - f->mantissa;
	int exponent = (int)(u >> 52) - 1023;

	if (v != v)
		return f->nan | (f->unsigned_zero ? 0 : sign);
	if (exponent >= 1 - f->bias) {
		/* a carry out of the mantissa increments the exponent, as it should */
		u += (1ull << (shift - 1)) - 1 + (u >> shift & 1);
		u = (u >> shift) - ((uint64_t)(1023 - f->bias) << f->mantissa);
		code = u > f->max ? f->over : (unsigned)u;
	} else {
		/* adding 2^52 rounds to an integer; 2^mantissa is the code of the smallest normal
		 * number */
		v = of_bits(u) * power_of_two(f->bias - 1 + (int)f->mantissa);
		code = (unsigned)(bits_of(v + 0x1p52) & 0xffff);
	}
	return f->unsigned_zero && (code == 0 || code == f->nan) ? code : code | sign;
}

/* bfloat16 is the upper half of float32. */
static void
load_bfloat16(const struct dtype *d, union block *restrict to, const void *restrict from)
{
	const uint16_t *x = from;

	for (int i = 0; i < DTYPE_BLOCK; i++) {
		uint32_t bits = (uint32_t)x[i] << 16;
		float v;

		memcpy(&v, &bits, sizeof(v));
		to->f[i] = v;
	}
}

/* Without branches: the bits are shifted to their places in float32, and a multiplication or a
 * subtraction corrects the exponent. */
static void
load_float16(const struct dtype *d, union block *restrict to, const void *restrict from)
{
	const uint16_t *x = from;

	for (int i = 0; i < DTYPE_BLOCK; i++) {
		uint32_t w = (uint32_t)x[i] << 16, sign = w & 0x80000000u, twice = w + w;
		uint32_t large = (twice >> 4) + (0xe0u << 23), small = (twice >> 17) | (126u << 23);
		float a, b;
		uint32_t bits;

		memcpy(&a, &large, sizeof(a));
		memcpy(&b, &small, sizeof(b));
		a *= 0x1p-112f;
		b -= 0.5f;
		a = twice < (1u << 27) ? b : a;
		memcpy(&bits, &a, sizeof(bits));
		bits |= sign;
		memcpy(&a, &bits, sizeof(a));
		to->f[i] = a;
	}
}

static void
store_16(const struct dtype *d, void *restrict to, const union block *restrict from)
{
	uint16_t *y = to;

	for (int i = 0; i < DTYPE_BLOCK; i++)
		y[i] = (uint16_t)encode(d->format, from->f[i]);
}

static void
store_8(const struct dtype *d, void *restrict to, const union block *restrict from)
{
	uint8_t *y = to;

	for (int i = 0; i < DTYPE_BLOCK; i++)
		y[i] = (uint8_t)encode(d->format, from->f[i]);
}

/* Only exponents: 2^(code - 127), 255 is NaN; a sign is lost, as in torch. */
static double
decode_e8m0(unsigned code)
{
	return code == 255 ? __builtin_nan("") : power_of_two((int)code - 127);
}

static void
store_e8m0(const struct dtype *d, void *restrict to, const union block *restrict from)
{
	uint8_t *y = to;

	for (int i = 0; i < DTYPE_BLOCK; i++) {
		float v = (float)from->f[i];
		uint32_t bits;
		unsigned exponent, low;

		memcpy(&bits, &v, sizeof(bits));
		exponent = bits >> 23 & 255;
		low = bits & 0x7fffff;
		/* to nearest; ties go up from normal numbers, whose leading bit is odd */
		if (exponent != 255 && (low > 0x400000 || (low == 0x400000 && exponent > 0)))
			exponent++;
		y[i] = (uint8_t)exponent;
	}
}

static const struct dtype_format half = {10, 16, 15, 0x7bff, 0x7c00, 0x7e00, false};
static const struct dtype_format brain = {7, 16, 127, 0x7f7f, 0x7f80, 0x7fc0, false};

/* 8-bit types: the value of every code is looked up in a table. */
enum { E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ, EIGHTS };

static const struct dtype_format eights[EIGHTS] = {
    [E4M3FN] = {3, 8, 7, 0x7e, 0x7f, 0x7f, false},
    [E5M2] = {2, 8, 15, 0x7b, 0x7c, 0x7f, false},
    [E4M3FNUZ] = {3, 8, 8, 0x7f, 0x80, 0x80, true},
    [E5M2FNUZ] = {2, 8, 16, 0x7f, 0x80, 0x80, true},
};
static double eight_values[EIGHTS + 1][256]; /* the last row: e8m0 */
static pthread_once_t values_made = PTHREAD_ONCE_INIT;

static void
make_values(void)
{
	for (unsigned code = 0; code < 256; code++) {
		for (int k = 0; k < EIGHTS; k++)
			eight_values[k][code] = decode(&eights[k], code);
		eight_values[EIGHTS][code] = decode_e8m0(code);
	}
}

static void
load_8(const struct dtype *d, union block *restrict to, const void *restrict from)
{
	const double *values = eight_values[d->format ? d->format - eights : EIGHTS];
	const uint8_t *x = from;

	for (int i = 0; i < DTYPE_BLOCK; i++)
		to->f[i] = values[x[i]];
}

/* clang-format off */
static const struct dtype dtypes[] = {
    {"bool", 1, 1, KIND_UNSIGNED, load_bool, store_uint8, NULL},
    {"int8", 1, 1, KIND_SIGNED, load_int8, store_int8, NULL},
    {"int16", 2, 1, KIND_SIGNED, load_int16, store_int16, NULL},
    {"int32", 4, 1, KIND_SIGNED, load_int32, store_int32, NULL},
    {"int64", 8, 1, KIND_SIGNED, load_int64, store_int64, NULL},
    {"uint8", 1, 1, KIND_UNSIGNED, load_uint8, store_uint8, NULL},
    {"uint16", 2, 1, KIND_UNSIGNED, load_uint16, store_uint16, NULL},
    {"uint32", 4, 1, KIND_UNSIGNED, load_uint32, store_uint32, NULL},
    {"uint64", 8, 1, KIND_UNSIGNED, load_uint64, store_uint64, NULL},
    {"float16", 2, 1, KIND_FLOAT, load_float16, store_16, &half},
    {"bfloat16", 2, 1, KIND_FLOAT, load_bfloat16, store_16, &brain},
    {"float32", 4, 1, KIND_FLOAT, load_float32, store_float32, NULL},
    {"float64", 8, 1, KIND_FLOAT, load_float64, store_float64, NULL},
    {"complex32", 2, 2, KIND_FLOAT, load_float16, store_16, &half},
    {"complex64", 4, 2, KIND_FLOAT, load_float32, store_float32, NULL},
    {"complex128", 8, 2, KIND_FLOAT, load_float64, store_float64, NULL},
    {"float8_e4m3fn", 1, 1, KIND_FLOAT, load_8, store_8, &eights[E4M3FN]},
    {"float8_e5m2", 1, 1, KIND_FLOAT, load_8, store_8, &eights[E5M2]},
    {"float8_e4m3fnuz", 1, 1, KIND_FLOAT, load_8, store_8, &eights[E4M3FNUZ]},
    {"float8_e5m2fnuz", 1, 1, KIND_FLOAT, load_8, store_8, &eights[E5M2FNUZ]},
    {"float8_e8m0fnu", 1, 1, KIND_FLOAT, load_8, store_e8m0, NULL},
};

/* clang-format on */

const struct dtype *
dtype_find(struct slice name)
{
	pthread_once(&values_made, make_values);
	for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
		if (slice_eq(name, dtypes[i].name))
			return &dtypes[i];
	return NULL;
}
