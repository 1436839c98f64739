/* An object on its way out: asks ranks for their bytes, and makes one of all where an OP says so.
 */
#ifndef PULL_H
#define PULL_H
#include "tree/var_file.h"

struct pull;

/* Called once, maybe before pull_new returns: the bytes are there, or (e->no) are not. */
typedef void pull_fn(void *arg, const struct err *e);

/* at: of a variable, without its name. NULL with e if a rank has no engine. */
struct pull *pull_new(const struct place *at, const struct var_name *name, struct err *e);
/* fn may free it. */
void pull_start(struct pull *p, pull_fn *fn, void *arg);
/* Where the bytes are, and how many; as long as the pull lives. */
const struct source *pull_source(const struct pull *p);
uint64_t pull_size(const struct pull *p);
/* Lets go of everything, as soon as what is under way allows it; fn is not called any more.
 * NULL-safe. */
void pull_free(struct pull *p);

#endif
