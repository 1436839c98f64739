/* Users and groups of this host, by name. */
#ifndef IDS_H
#define IDS_H
#include <stdbool.h>
#include <sys/types.h>

/* Look up a user or group by name or number. Return false, with *id unchanged, if there is none.
 * They read files and may query servers: do not call them from the loop. */
bool ids_user(const char *s, uid_t *id);
bool ids_group(const char *s, gid_t *id);

#endif
