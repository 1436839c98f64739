/*
 * Plans of reductions: do the parts of the ranks go together, and what comes out? reduce.c makes
 * it. A plan may be for ranks of one host only: what comes out then is a part, too (shard.h), which
 * the parts of other hosts are combined with.
 */
#ifndef REDUCE_PLAN_H
#define REDUCE_PLAN_H
#include "dtype.h"
#include "shard.h"

struct reduction;
struct reduce_plan;

/* An operation: what comes out, and how a piece of it is made. */
struct reduce_op {
	const char *name;
	int (*plan)(struct reduce_plan *p, struct err *e);
	int (*piece)(struct reduction *r, uint64_t k, char *scratch, struct err *e);
	/* acc = acc op x, for DTYPE_BLOCK numbers */
	void (*fold[KINDS])(union block *restrict acc, const union block *restrict x);
	bool adds; /* what comes out may need a wider type than the parts have */
	bool mean; /* in floating point, and divided by the number of ranks */
};

struct reduce_plan {
	const struct reduce_op *op;
	char *what; /* the object, for messages */
	struct shard *parts;
	int n;
	bool part; /* what comes out is one */
	/* the plan: */
	int ranks;
	bool joined;		      /* the parts' bytes one behind the other */
	const struct dtype **in;      /* of arithmetic: of each part */
	const struct dtype *of, *out; /* of the object's elements, of what comes out */
	uint64_t total;		      /* numbers of arithmetic, bytes else */
	char *line;		      /* `OP KIND ITEMSIZE SHAPE DTYPE`; the head of a part */
};

/* All of the plan behind its first five fields. 0, or -errno with e. */
int reduce_plan_stack(struct reduce_plan *p, struct err *e);
int reduce_plan_join(struct reduce_plan *p, struct err *e);
int reduce_plan_numbers(struct reduce_plan *p, struct err *e);
int reduce_plan_same(struct reduce_plan *p, struct err *e);
void reduce_plan_free(struct reduce_plan *p); /* what it points to */

#endif
