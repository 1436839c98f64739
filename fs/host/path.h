/* Checks paths given by users, so that the daemon never touches one that would make it wait for
 * itself. */
#ifndef PATH_H
#define PATH_H
#include "err.h"

/* Does this absolute path, with its symbolic links followed, stay outside every ddipfs mount?
 * Returns 0; -EINVAL with e if it leads into one, where the daemon would wait for itself (or for
 * another daemon that waits for it); -errno if it cannot be followed. what: the setting, for
 * messages. */
int path_check_outside(const char *what, const char *path, struct err *e);

#endif
