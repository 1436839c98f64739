/*
 * One object made of all ranks' parts: arithmetic by elements, joining, comparing, piece by piece on
 * the copy threads into a memfd. Knows neither ranks' processes nor Python: a part is a source.
 */
#ifndef REDUCE_H
#define REDUCE_H
#include "copy.h"
#include "dtype.h"
#include "loop.h"

enum { REDUCE_DIMS = 64 };

/* What a rank gave. The bytes, and the line that the slices point into, belong to the caller. */
struct portion {
	int rank;
	struct source source;
	uint64_t at, size; /* where its bytes begin in the source, and how many they are */
	struct slice kind; /* tensor, array; object: bytes that are only joined */
	size_t itemsize;
	int dims;
	uint64_t shape[REDUCE_DIMS];
	struct slice dtype;
};

struct reduction;

/* An operation: what comes out, and how a piece of it is made. */
struct reduce_op {
	const char *name;
	int (*plan)(struct reduction *r, struct err *e);
	int (*piece)(struct reduction *r, uint64_t k, char *scratch, struct err *e);
	/* acc = acc op x, for DTYPE_BLOCK numbers */
	void (*fold[LANES])(union lane *restrict acc, const union lane *restrict x);
	bool mean; /* in floating point, and divided by the number of parts */
};

extern const struct reduce_op reduce_mean, reduce_sum, reduce_min, reduce_max, reduce_gather,
    reduce_cat, reduce_same;

/* Reads the line `KIND ITEMSIZE SHAPE DTYPE\n` that a source of so many bytes begins with.
 * -EBADMSG. */
int reduce_part(
    struct portion *p, int rank, const struct source *source, uint64_t size, struct err *e);
/* The whole source as bytes of no further meaning. */
void reduce_raw(struct portion *p, int rank, const struct source *source, uint64_t size);

/* Called once, on the loop. */
typedef void reduce_fn(void *arg, const struct err *e);

/* what: the object, for messages. NULL with e: the parts do not go together. */
struct reduction *reduce_new(const struct reduce_op *op, const char *what, const struct portion *parts,
    int n, struct err *e);
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
