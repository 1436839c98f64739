/* Checks paths that users give: the daemon looks at one only where it cannot wait for itself. */
#ifndef PATH_H
#define PATH_H
#include "err.h"

/* Does this absolute path, its symbolic links followed, stay outside of every ddipfs mount? 0;
 * -EINVAL with e: it leads into one, where the daemon would wait for itself (or for another that
 * waits for it); -errno: it cannot be followed. what: the setting, for the text. */
int path_check_outside(const char *what, const char *path, struct err *e);

#endif
