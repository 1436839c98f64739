/*
 * The hosts of a group: the agents there, and which rank runs where. Without the setting `hosts`
 * there is one, this machine, which has no name and room for all ranks. Only this module writes
 * struct group_hosts and struct host.
 */
#ifndef HOSTS_H
#define HOSTS_H
#include "group/group.h"
#include "host/hostlist.h"

/* This machine alone. */
void hosts_init(struct group *g);
/* Lets go of all agents. No rank has a process. */
void hosts_free(struct group *g);
/* Does the group name its hosts? */
bool hosts_named(const struct group *g);
/* Are all of them this machine? */
bool hosts_here(const struct group *g);
/* The process of a rank if it is one of this machine's, 0: it is elsewhere, or there is none. All
 * that reads /proc or memory of a rank goes by this. */
pid_t hosts_local_pid(const struct rank *k);
/* How many ranks have room on all of them. */
long hosts_slots(const struct group *g);

/* In the place of those that there were (n 0: this machine). Those whose names stay keep their
 * agents and ranks. 0, or -EINVAL: ranks live on one that is not among them, or has not room for
 * them any more. */
int hosts_set(struct group *g, const struct hostlist *to, struct err *e);
/* The setting `hosts` has changed while processes are left: hosts_update takes it when they have
 * ended. */
void hosts_set_later(struct group *g);
void hosts_update(struct group *g);
/* The agents of all hosts that ranks would be placed on are started, and a zygote there. 0, or
 * -errno with e. */
int hosts_warm(struct group *g, struct err *e);

/* For a start: places all ranks, and starts the agents of their hosts. 0, or -errno with e. */
int hosts_start(struct group *g, struct err *e);
/* Places those that lost their host, as far as there is room, with agents: 0, or -errno with e if
 * some have no place. */
int hosts_replace(struct group *g, struct err *e);
/* The agent that started this host's ranks has ended, whoever serves now. */
bool hosts_agent_gone(const struct host *h);
/* No rank is placed there until the next start, or until `hosts` is set. */
void hosts_lose(struct host *h);
/* Ranks have no place, or have one again. */
void hosts_lack(struct group *g, bool lacking);
/* Those that were lost may be tried again. */
void hosts_forgive(struct group *g);
/* Does one live yet that has ranks? */
bool hosts_any_alive(const struct group *g);

#endif
