/*
 * Plans of reductions: do the ranks' parts fit together, and what is the result? reduce.c computes
 * it. A plan may cover the ranks of one host only: its result is then also a part (shard.h), which
 * is combined with the parts of other hosts.
 */
#ifndef REDUCE_PLAN_H
#define REDUCE_PLAN_H
#include "dtype.h"
#include "shard.h"

struct reduce_plan;

/* An operation: what its result is, and how a range of it is computed. */
struct reduce_op {
	const char *name;
	int (*plan)(struct reduce_plan *p, struct err *e);
	/* Makes n bytes of the result from this offset on. */
	int (*range)(const struct reduce_plan *p, uint64_t offset, char *to, size_t n,
	    char *scratch, struct err *e);
	/* acc = acc op x, for DTYPE_BLOCK numbers */
	void (*fold[KINDS])(union block *restrict acc, const union block *restrict x);
	bool adds; /* the result may need a wider type than the parts have */
	bool mean; /* computed in floating point, divided by the number of ranks */
};

struct reduce_plan {
	const struct reduce_op *op;
	char *what; /* names the object in messages */
	struct shard *parts;
	int n;
	bool part; /* the result is a part */
	/* The plan: */
	int ranks;
	bool joined;		      /* the result is the parts' bytes, concatenated */
	size_t width;		      /* of their elements, padded with zeros; 0: nothing to pad */
	const struct dtype **in;      /* arithmetic: type of each part */
	const struct dtype *of, *out; /* type of the object's elements, of the result */
	uint64_t size;		      /* of the result, in bytes */
	char *line;		      /* `OP KIND ITEMSIZE SHAPE DTYPE`; or the head of a part */
};

/* Each fills in the fields after the first five. Returns 0, or -errno with *e set. */
int reduce_plan_stack(struct reduce_plan *p, struct err *e);
int reduce_plan_join(struct reduce_plan *p, struct err *e);
int reduce_plan_numbers(struct reduce_plan *p, struct err *e);
int reduce_plan_same(struct reduce_plan *p, struct err *e);
void reduce_plan_free(struct reduce_plan *p); /* frees what it points to */

#endif
