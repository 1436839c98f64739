/* Texts about the hosts of a group. */
#ifndef HOST_TEXT_H
#define HOST_TEXT_H
#include "base/record.h"
#include "group/group.h"

/* The name of a rank's host; "-" if it has none. */
const char *host_text_name(const struct rank *k);
/* Appends a list with a record for each host, and starts measuring the round trips again for the
 * next call. */
void host_text_all(struct group *g, struct record *out);
/* Appends the ranks that have no place and the hosts they ran on, as "2 (b), 3 (b)". */
void host_text_lacking(const struct group *g, struct buf *out);

#endif
