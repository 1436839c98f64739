/*
 * Combines an array that each rank has on its GPU over a link, chunk by chunk, into a file of rank
 * 0: `mean`, `sum`, `min` and `max` of reduce.h where NCCL gives what that gives.
 *
 * Integers are the same. A sum of floats may differ in the last bits: NCCL rounds at each addition
 * and adds in an order of its own, reduce.c adds in double and rounds once. For that reason types
 * of 16 bits are not added here. What NCCL may get wrong is noticed and refused with EDOM: a sum
 * that is not finite (a mean may well be), and NaN among floats of which it seeks the least or
 * greatest.
 */
#ifndef NCCL_COMBINE_H
#define NCCL_COMBINE_H
#include "rank/nccl_link.h"

enum { COMBINE_CHUNK = 16 << 20 }; /* bytes of a GPU that rank 0 needs, twice for min and max */

/* The type of an array's elements, and of the numbers in them; NULL: see nccl_combine_type(). */
struct combine_type;

struct combine {
	const struct combine_type *type;
	enum nccl_op op;
	bool mean; /* of NCCL_SUM: divided by the number of ranks */
	uint64_t address;
	size_t count; /* numbers: two of each complex element */
	int fd;	      /* of rank 0: written from its beginning on */
};

/* Fills type, op and mean for an OP and a type as NumPy and torch name them. False: NCCL is not for
 * these. */
bool nccl_combine_plan(struct combine *c, const char *op, const char *dtype);
/* Bytes of the array. */
uint64_t nccl_combine_size(const struct combine *c);
/* All ranks of the link do it with the same array but for address and fd. After a failure the link
 * is closed. */
int nccl_combine(struct nccl_link *l, const struct combine *c, struct err *e);

#endif
