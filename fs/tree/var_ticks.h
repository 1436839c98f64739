/* Reports names that appear and vanish to programs that watch the vars directories with inotify. */
#ifndef VAR_TICKS_H
#define VAR_TICKS_H
#include "group/group.h"
#include "host/ticks.h"
#include "tree/tree.h"
#include "object/var_table.h"

/* A rank has reported a new table. Sends CREATE and DELETE for the names, or one MODIFY for the
 * directory if there are very many. */
void var_ticks_table(
    struct group *g, int rank, const struct var_table *old, const struct var_table *new);

struct var_told;

/* A client creates (TICK_CREATE) or removes (TICK_DELETE) a name in this directory, and the kernel
 * has notified watchers: the rank's report will not repeat that. Returns NULL for a name that is
 * not listed. */
struct var_told *var_ticks_told(const struct place *at, const char *name, enum tick_kind kind);
/* The change has ended. If it had no effect, reports that to the watchers. Frees t. NULL-safe. */
void var_ticks_settle(struct var_told *t);

#endif
