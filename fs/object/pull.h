/*
 * Reads an object: asks ranks for their bytes, and combines those of all ranks if there is an OP.
 */
#ifndef PULL_H
#define PULL_H
#include "base/req.h"
#include "object/got.h"
#include "object/varname.h"

struct pull;

/* Called once, maybe before pull_start returns: the bytes are there, or (e->no) are not. */
typedef void pull_fn(void *arg, const struct err *e);

/* Of these ranks, which have engines now: of one without an OP, of all with one. The pull frees
 * them. */
struct pull *pull_new(struct pull_rank *ranks, int n, const struct var_name *name);
/* fn may free it. */
void pull_start(struct pull *p, pull_fn *fn, void *arg);
/* Before pull_start(): pull_source() will have all bytes. Else those of a GPU are read by
 * pull_read() only. */
void pull_to_host(struct pull *p);
/* Answers a READ with n bytes, which are there. */
void pull_read(const struct pull *p, struct req *r, size_t n);
/* Where the bytes are, and how many; as long as the pull lives. */
const struct source *pull_source(const struct pull *p);
uint64_t pull_size(const struct pull *p);
/* Whoever waits for this engine gets ECANCELED, by fn, which frees the pull. */
void pull_interrupt(const struct agent *a, int slot);
/* Lets go of everything, as soon as what is under way allows it; fn is not called any more. What a
 * rank still makes for it is cancelled there.
 * NULL-safe. */
void pull_free(struct pull *p);

#endif
