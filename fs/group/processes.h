/*
 * Handles the processes of a group starting, joining, failing and dying. hooks.h says what each
 * event means.
 */
#ifndef PROCESSES_H
#define PROCESSES_H
#include "group/group.h"

void processes_rank_started(struct rank *k);
void processes_rank_ready(struct rank *k);
void processes_rank_join_failed(struct rank *k, const struct err *e);
void processes_rank_lost(struct rank *k, const struct err *why);
void processes_rank_died(struct rank *k, const char *how);
void processes_rank_spawn_failed(struct rank *k, const struct err *e);
void processes_store_started(struct group *g);
void processes_store_died(struct group *g, bool had_started, const struct err *e);

/* Places and starts the ranks that lost their host, if `hosts` has room for them. If not, the group
 * lacks a host, and this is reported. Does nothing unless the group is ready. */
void processes_place(struct group *g);

#endif
