/*
 * Reads an object: asks ranks for their bytes, and combines those of all ranks if there is an OP.
 */
#ifndef PULL_H
#define PULL_H
#include "object/got.h"
#include "object/varname.h"

struct pull;

/* Called once, possibly before pull_start returns: the bytes are there, or e->no is set. */
typedef void pull_fn(void *arg, const struct err *e);

/* Reads from these ranks, whose engines must be running: one without an OP, all with one. Takes
 * ownership of ranks. */
struct pull *pull_new(struct pull_rank *ranks, int n, const struct var_name *name);
/* fn may free the pull. */
void pull_start(struct pull *p, pull_fn *fn, void *arg);
/* Call before pull_start() if source_copy() is to read the bytes. Otherwise those on a GPU or
 * another host have a provider. */
void pull_to_host(struct pull *p);
/* Where the bytes are, and how many. Valid as long as the pull. */
const struct source *pull_source(const struct pull *p);
uint64_t pull_size(const struct pull *p);
/* Calls fn with ECANCELED for each pull that waits for this engine; fn frees the pull. */
void pull_interrupt(const struct agent *a, int slot);
/* Releases everything, as soon as pending work allows; fn is not called any more. Work that a rank
 * still does for it is cancelled there. NULL-safe. */
void pull_free(struct pull *p);

#endif
