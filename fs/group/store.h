/*
 * The process that holds the rendezvous store. Only this module writes struct group_store. hooks.h
 * says who hears of it.
 */
#ifndef STORE_H
#define STORE_H
#include "group/group.h"

/* Is one wanted, by the setting `backend`? */
bool store_wanted(const struct group *g);
/* Its process: started, asked to end, killed. */
void store_spawn(struct group *g);
void store_quit(struct group *g);
void store_kill(struct group *g);
/* Nothing is heard of it any more, and its group is taken down. */
void store_fini(struct group *g);

#endif
