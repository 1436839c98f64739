/*
 * Which ranks wait for which others: samples of where the ranks are, the text of G/stall, and the
 * event when nothing moves.
 */
#ifndef STALL_H
#define STALL_H
#include "base/record.h"
#include "group/group.h"

struct task;
struct stall_sample;

/* Called once with the text of `stall`, or its JSON, but not after stall_cancel(). */
typedef void stall_fn(void *arg, struct slice text);

/* Prepares a sample, whose text in this form (words or JSON) fn will get. about: the cell that
 * stall_verdict() and stall_straggler() are about; 0: any. */
struct stall_sample *stall_prepare(
    struct group *g, enum record_form form, uint32_t about, stall_fn *fn, void *arg);
/* Asks each rank where it is. Calls fn, possibly before it returns; the sample then frees itself. A
 * rank that does not answer in time is shown at "-". */
void stall_ask(struct stall_sample *s);
/* In fn: the first of what is certain of who waits for whom, and who is slow, or if none is, what a
 * step takes; NULL: nothing. */
const char *stall_verdict(const struct stall_sample *s);
const char *stall_straggler(const struct stall_sample *s);
const char *stall_pace(const struct stall_sample *s);
/* In fn: adds the ranks whose main thread, it is certain, waits in a collective for one that has
 * ended its part. */
void stall_in_vain(const struct stall_sample *s, struct rank_set *ranks);
/* The sample is no longer wanted: fn will not be called. */
void stall_cancel(struct stall_sample *s);

#endif
