/* The directories of a mount's spools and logs. */
#ifndef STATE_H
#define STATE_H
#include "err.h"

/* Creates ${DDIP_STATE:-${TMPDIR:-/var/tmp}}/ddipfs-UID/ID with mode 0700, and locks it for the
 * life of this process. Of the dead sessions at this mount point only the latest is kept. The
 * caller frees *dir. */
int state_make(const char *mountpoint, char **dir, struct err *e);

#endif
