/* Texts about the hosts of a group. */
#ifndef HOST_TEXT_H
#define HOST_TEXT_H
#include "group/group.h"

/* The name of the host of a rank; "-": it has none. */
const char *host_text_name(const struct rank *k);
/* A line for each host; their round trips are measured anew, for the next text. */
void host_text_all(struct group *g, struct buf *out);
/* "2 (b), 3 (b)": which ranks have no place, and whose they were. */
void host_text_lacking(const struct group *g, struct buf *out);

#endif
