/* Tells programs that watch the vars directories with inotify which names come and go. */
#ifndef VAR_TICKS_H
#define VAR_TICKS_H
#include "group/group.h"
#include "host/ticks.h"
#include "tree/tree.h"
#include "object/var_table.h"

/* A rank reports another table: CREATE and DELETE of the names, or one MODIFY of the directory
 * where they are very many. */
void var_ticks_table(
    struct group *g, int rank, const struct var_table *old, const struct var_table *new);

struct var_told;

/* A client makes a name come (TICK_CREATE) or go (TICK_DELETE) in this directory, and the kernel
 * has told who watches: the rank's report will not tell it again. NULL for a name that is not
 * listed. */
struct var_told *var_ticks_told(const struct place *at, const char *name, enum tick_kind kind);
/* What came of it is known: if it came to nothing, that is told. NULL-safe. */
void var_ticks_settle(struct var_told *t);

#endif
