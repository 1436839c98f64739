/*
 * Types of array elements: converts blocks of them to a kind of number to compute with, and back.
 */
#ifndef DTYPE_H
#define DTYPE_H
#include "util.h"

/* Loops of constant length over whole blocks: the compiler makes vector code of them. */
enum { DTYPE_BLOCK = 1024 };

/* Floating point is computed in double, integers in 64 bits that wrap. */
enum dtype_kind { KIND_FLOAT, KIND_SIGNED, KIND_UNSIGNED, KINDS };

union block {
	double f[DTYPE_BLOCK];
	int64_t i[DTYPE_BLOCK];
	uint64_t u[DTYPE_BLOCK];
};

/* A floating-point type of at most 16 bits. */
struct dtype_format {
	unsigned mantissa, bits; /* bits of it, of all */
	int bias;
	unsigned max, over, nan; /* codes: the largest number, what is larger, NaN */
	bool unsigned_zero;	 /* there is no -0: that code is NaN */
};

struct dtype {
	const char *name; /* as NumPy and torch have it */
	size_t size;	  /* of one number */
	unsigned reals;	  /* numbers in an element: 2 of a complex one */
	enum dtype_kind kind;
	/* DTYPE_BLOCK numbers each way; the results are rounded once, to nearest, ties to even */
	void (*load)(const struct dtype *d, union block *restrict to, const void *restrict from);
	void (*store)(const struct dtype *d, void *restrict to, const union block *restrict from);
	const struct dtype_format *format;
};

/* NULL: no type that is computed with. */
const struct dtype *dtype_find(struct slice name);

#endif
