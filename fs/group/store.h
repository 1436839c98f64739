/*
 * The process that holds the rendezvous store, whose events are reported through hooks.h. Only this
 * module writes struct group_store.
 */
#ifndef STORE_H
#define STORE_H
#include "group/group.h"

/* Does the setting `backend` require a store? */
bool store_wanted(const struct group *g);
/* Start the store's process, ask it to end, kill it. */
void store_spawn(struct group *g);
void store_quit(struct group *g);
void store_kill(struct group *g);
/* Detaches from the process because its group is being removed: no more events are reported. */
void store_fini(struct group *g);

/* Tells the store which hosts have ranks now: it takes connections of no other machine. */
void store_addresses(struct group *g);

#endif
