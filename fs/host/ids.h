/* Users and groups of this host, by name. */
#ifndef IDS_H
#define IDS_H
#include <stdbool.h>
#include <sys/types.h>

/* The user, the group of a name or a number; false: there is none, id is as before. They read
 * files, and may ask servers: not for the loop. */
bool ids_user(const char *s, uid_t *id);
bool ids_group(const char *s, gid_t *id);

#endif
