/* Names that come and go in the vars directories, for who watches them with inotify. */
#ifndef VAR_TICKS_H
#define VAR_TICKS_H
#include "group/group.h"
#include "object/var_table.h"

/* A rank reports another table: CREATE and DELETE of the names, or one MODIFY of the directory
 * where they are very many. */
void var_ticks_table(
    struct group *g, int rank, const struct var_table *old, const struct var_table *new);

#endif
