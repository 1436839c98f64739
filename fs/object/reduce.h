/*
 * Combines all ranks' parts into one object: arithmetic by elements, joining, comparing, piece by
 * piece on the copy threads into a memfd. Knows neither ranks' processes nor Python.
 */
#ifndef REDUCE_H
#define REDUCE_H
#include "object/dtype.h"
#include "loop.h"
#include "object/shard.h"

struct reduction;

/* An operation: what comes out, and how a piece of it is made. */
struct reduce_op {
	const char *name;
	int (*plan)(struct reduction *r, struct err *e);
	int (*piece)(struct reduction *r, uint64_t k, char *scratch, struct err *e);
	/* acc = acc op x, for DTYPE_BLOCK numbers */
	void (*fold[KINDS])(union block *restrict acc, const union block *restrict x);
	bool mean; /* in floating point, and divided by the number of parts */
};

extern const struct reduce_op reduce_mean, reduce_sum, reduce_min, reduce_max, reduce_gather,
    reduce_cat, reduce_same;

/* Called once, on the loop. */
typedef void reduce_fn(void *arg, const struct err *e);

/* what: the object, for messages. NULL with e: the parts do not go together. */
struct reduction *reduce_new(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e);
/* Does it; if it is little, before this returns. fn may free it. */
void reduce_run(struct reduction *r, struct loop *l, reduce_fn *fn, void *arg);
/* It ends soon, with ECANCELED; fn is still called. */
void reduce_cancel(struct reduction *r);
/* The memfd with the result's bytes; -1 if there is none (same). Stays the reduction's. */
int reduce_result(const struct reduction *r);
/* `OP KIND ITEMSIZE SHAPE DTYPE` of the result. */
const char *reduce_line(const struct reduction *r);
void reduce_free(struct reduction *r); /* NULL-safe; not while it runs */

#endif
