/*
 * The hosts of a group: their agents, and which rank runs where. Without the setting `hosts` there
 * is only this machine, which has no name and has room for all ranks. Only this module writes
 * struct group_hosts and struct host.
 */
#ifndef HOSTS_H
#define HOSTS_H
#include "group/group.h"
#include "host/hostlist.h"

/* Starts with this machine only. */
void hosts_init(struct group *g);
/* Releases all agents. No rank may have a process. */
void hosts_free(struct group *g);
/* The number of ranks that all hosts together have room for. */
long hosts_slots(const struct group *g);

/* Replaces the hosts of the group (n 0: this machine only). Hosts that remain in the list keep
 * their agents and ranks. Returns 0, or -EINVAL with *e set if a host that has processes is not in
 * the list, or no longer has room for them. */
int hosts_set(struct group *g, const struct hostlist *to, struct err *e);
/* The setting `hosts` has changed while processes are still running: hosts_update() applies it once
 * they have ended. */
void hosts_set_later(struct group *g);
void hosts_update(struct group *g);
/* Starts the agents of all hosts that ranks would be placed on, with a zygote on each. Returns 0,
 * or -errno with *e set. */
int hosts_warm(struct group *g, struct err *e);

/* Places all ranks for a start, and starts their hosts' agents. Returns 0, or -errno. */
int hosts_start(struct group *g, struct err *e);
/* Places the ranks that lost their host, and starts the agents of their new hosts. Returns 0, or
 * -errno with *e set; no rank moves if there is not room for all of them. */
int hosts_replace(struct group *g, struct err *e);
/* Has the agent that started this host's ranks ended? Another one may have taken its place. */
bool hosts_agent_gone(const struct host *h);
/* Marks a host as lost: no rank is placed there until hosts_forgive() or hosts_set(). */
void hosts_lose(struct host *h);
/* Records whether ranks lack a place. */
void hosts_lack(struct group *g, bool lacking);
/* Lets lost hosts be tried again. */
void hosts_forgive(struct group *g);
/* Is any host that has ranks still alive? */
bool hosts_any_alive(const struct group *g);
/* While the group ends, gives up the hosts that are not connected yet, where nothing runs. */
void hosts_end_connecting(struct group *g);
/* The same for those whose processes have not been reported as ended: what still runs there ends
 * with the connection. Neither gives up a host where another group has processes. */
void hosts_end_silent(struct group *g);

#endif
