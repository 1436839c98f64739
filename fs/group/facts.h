/*
 * What the hosts of a group have: the Python, torch, GPUs … that each rank reports when it starts.
 * Before the ranks join, they are compared, and the backend of the group is chosen.
 */
#ifndef FACTS_H
#define FACTS_H
#include "base/record.h"
#include "group/group.h"

/* Keeps the facts that a rank has reported: lines of a name, a blank and a value. */
void facts_set(struct rank *k, struct slice lines);
void facts_drop(struct rank *k);
/* Adds them to a record; what is not known is none. facts may be NULL. */
void facts_print(const struct facts *facts, struct record *out);

/* Appends the addresses of the hosts of all ranks that have started, for Naddresses. "*", anywhere:
 * an external rank may be, and on a single host a program listens on the network only if its user
 * wants that. */
void facts_addresses(const struct group *g, struct buf *out);

/* Can these ranks form one group? Chooses its backend, if that is not chosen yet; later calls check
 * whether replaced ranks fit it. Returns 0, or -errno with *e set to a text with a table. */
int facts_check(struct group *g, struct err *e);
/* The next facts_check() chooses the backend again. */
void facts_forget_backend(struct group *g);
/* The chosen backend, or the setting before the choice. */
const char *facts_backend(const struct group *g);

#endif
