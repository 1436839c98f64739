/*
 * Combines all ranks' parts into one object: arithmetic by elements, joining, comparing, piece by
 * piece on the copy threads into a memfd. Knows neither ranks' processes nor Python.
 */
#ifndef REDUCE_H
#define REDUCE_H
#include "loop.h"
#include "reduce_plan.h"

extern const struct reduce_op reduce_mean, reduce_sum, reduce_min, reduce_max, reduce_gather,
    reduce_cat, reduce_same;

/* The operation of this name that hosts can do first, each with its own ranks; NULL: there is none.
 */
const struct reduce_op *reduce_by_hosts(struct slice name);

/* Called once, on the loop. */
typedef void reduce_fn(void *arg, const struct err *e);

/* what: the object, for messages. NULL with e: the parts do not go together. */
struct reduction *reduce_new(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e);
/* The same for ranks of one host, which is not the only one: a part comes out. */
struct reduction *reduce_new_part(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e);
/* Does it; if it is little, before this returns. fn may free it. */
void reduce_run(struct reduction *r, struct loop *l, reduce_fn *fn, void *arg);
/* It ends soon, with ECANCELED; fn is still called. */
void reduce_cancel(struct reduction *r);
/* The memfd with the result's bytes; -1 if there is none (same, of all). Stays the reduction's. */
int reduce_result(const struct reduction *r);
/* `OP KIND ITEMSIZE SHAPE DTYPE` of the result; what a part begins with. */
const char *reduce_line(const struct reduction *r);
/* The op of elements of numbers, their type, and how many numbers they are; false: it is for
 * Python. */
bool reduce_numbers(
    const struct reduction *r, const char **op, const char **dtype, uint64_t *numbers);
void reduce_free(struct reduction *r); /* NULL-safe; not while it runs */

#endif
