/*
 * Combines an array that each rank has on its GPU, chunk by chunk over a link, into a file of rank
 * 0: `mean`, `sum`, `min` and `max` of reduce.h, where NCCL gives the same result.
 *
 * Integer results are identical. A sum of floats may differ in the last bits: NCCL rounds at each
 * addition and adds in an order of its own; reduce.c adds in double and rounds once. For that
 * reason 16-bit types are not summed here. Results that NCCL may get wrong are detected and refused
 * with EDOM: a sum that is not finite (the mean may well be finite), and NaN among floats in a
 * minimum or maximum.
 */
#ifndef NCCL_COMBINE_H
#define NCCL_COMBINE_H
#include "rank/nccl_link.h"

/* In bytes. Rank 0 needs this much memory on its GPU, and twice as much for min and max. */
enum { COMBINE_CHUNK = 16 << 20 };

/* The type of an array's elements, and of the numbers in them. */
struct combine_type;

struct combine {
	const struct combine_type *type; /* NULL: nccl_combine_plan() failed */
	enum nccl_op op;
	bool mean; /* NCCL_SUM: divide by the number of ranks */
	uint64_t address;
	size_t count; /* numbers: two for each complex element */
	int fd;	      /* rank 0: the file, written from offset 0 */
};

/* Sets type, op and mean for an OP and a type as NumPy and torch name them. Returns false if NCCL
 * cannot be used for these. */
bool nccl_combine_plan(struct combine *c, const char *op, const char *dtype);
/* Size of the array in bytes. */
uint64_t nccl_combine_size(const struct combine *c);
/* All ranks of the link must call it with the same c, except for address and fd. A failure closes
 * the link. */
int nccl_combine(struct nccl_link *l, const struct combine *c, struct err *e);

#endif
