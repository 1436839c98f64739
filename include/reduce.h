/*
 * Combines all ranks' parts into one object: element-wise arithmetic, joining or comparing, on the
 * copy threads: all of it into a memfd, or range by range when it is read. Knows neither the ranks'
 * processes nor Python.
 */
#ifndef REDUCE_H
#define REDUCE_H
#include "loop.h"
#include "reduce_plan.h"

extern const struct reduce_op reduce_mean, reduce_sum, reduce_min, reduce_max, reduce_gather,
    reduce_cat, reduce_same;

/* The operation of this name that each host can first apply to its own ranks; NULL if there is
 * none. */
const struct reduce_op *reduce_by_hosts(struct slice name);

/* Called once, on the loop. */
typedef void reduce_fn(void *arg, const struct err *e);

/* what names the object in messages. Returns NULL with *e set, for example if the parts do not fit
 * together. */
struct reduction *reduce_new(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e);
/* The same for the ranks of one of several hosts: the result is a part. */
struct reduction *reduce_new_part(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e);
/* Runs the reduction; a small one completes before this returns. fn may free it. */
void reduce_run(struct reduction *r, struct loop *l, reduce_fn *fn, void *arg);
/* Instead of reduce_run(), nothing is combined before it is read: */
/* Are its bytes numbers or elements as they lie in memory, which can be made range by range? */
bool reduce_is_data(const struct reduction *r);
uint64_t reduce_size(const struct reduction *r); /* of the result, in bytes */
/* What makes the bytes of the result when they are read, in the parts' present state. The memfd is
 * closed. fn is called on the loop after the last user of the maker has gone, unless that was the
 * caller itself by maker_leave(); until then, r and the parts must exist. */
struct maker *reduce_maker(struct reduction *r, struct loop *l, reduce_fn *fn, void *arg);
/* Makes it end soon, with ECANCELED; fn is still called. */
void reduce_cancel(struct reduction *r);
/* The memfd with the bytes of the result; -1 if there is none (same, over all ranks). The reduction
 * keeps ownership. */
int reduce_result(const struct reduction *r);
/* The same, and the caller becomes the owner. */
int reduce_take_result(struct reduction *r);
/* `OP KIND ITEMSIZE SHAPE DTYPE` of the result; for a part, the lines that it begins with. */
const char *reduce_line(const struct reduction *r);
/* The operation, and the type and count of the numbers that it combines. False: the parts are not
 * combined by arithmetic on numbers. */
bool reduce_numbers(
    const struct reduction *r, const char **op, const char **dtype, uint64_t *numbers);
void reduce_free(struct reduction *r); /* NULL-safe; not while it runs */

#endif
