/* The directories of a mount's spools and logs. */
#ifndef STATE_H
#define STATE_H
#include "err.h"

/* ${DDIP_STATE:-${TMPDIR:-/var/tmp}}/ddipfs-UID/ID, made now, 0700, locked while this process
 * lives. Of the dead sessions at this mount point only the last is kept. *dir is the caller's. */
int state_make(const char *mountpoint, char **dir, struct err *e);

#endif
