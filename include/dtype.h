/* Array element types: converts blocks of elements to numbers for arithmetic, and back. */
#ifndef DTYPE_H
#define DTYPE_H
#include "util.h"

/* All loops run over whole blocks: with a constant length the compiler vectorizes them. */
enum { DTYPE_BLOCK = 1024 };

/* Floating point is computed in double, integers in 64 bits with wraparound. */
enum dtype_kind { KIND_FLOAT, KIND_SIGNED, KIND_UNSIGNED, KINDS };

union block {
	double f[DTYPE_BLOCK];
	int64_t i[DTYPE_BLOCK];
	uint64_t u[DTYPE_BLOCK];
};

/* A floating-point type of at most 16 bits. */
struct dtype_format {
	unsigned mantissa, bits; /* bits of the mantissa, of the whole type */
	int bias;
	unsigned max, over, nan; /* codes: largest finite number, overflow, NaN */
	bool unsigned_zero;	 /* no -0: its code is NaN */
};

struct dtype {
	const char *name; /* as in NumPy and torch */
	size_t size;	  /* of one number, in bytes */
	unsigned reals;	  /* numbers per element: 2 if complex */
	enum dtype_kind kind;
	/* Convert DTYPE_BLOCK numbers. Results are rounded once, to nearest, ties to even. */
	void (*load)(const struct dtype *d, union block *restrict to, const void *restrict from);
	void (*store)(const struct dtype *d, void *restrict to, const union block *restrict from);
	const struct dtype_format *format;
};

/* NULL if there is no arithmetic for this type. */
const struct dtype *dtype_find(struct slice name);

#endif
