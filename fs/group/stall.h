/*
 * Who waits for whom: samples of where the ranks are, the text of G/stall, and the event when
 * nothing moves.
 */
#ifndef STALL_H
#define STALL_H
#include "group/group.h"

struct task;
struct stall_sample;

/* Called once, with the text of `stall`; not after stall_cancel. */
typedef void stall_fn(void *arg, struct slice text);

/* A sample to be taken: fn will hear of it. */
struct stall_sample *stall_prepare(struct group *g, stall_fn *fn, void *arg);
/* Asks each rank where it is. fn is called, perhaps at once, and the sample frees itself. A rank
 * that does not answer in time is at "-". */
void stall_ask(struct stall_sample *s);
/* Nobody wants it any more: fn will not be called. */
void stall_cancel(struct stall_sample *s);
/* A cell has begun: sampled each `stall` seconds until it has ended; an event is raised when
 * nothing moves. */
void stall_watch(struct task *w);

#endif
