/* A host as people and its ranks see it: whether it is this machine, which no other file of this
 * folder decides (scripts/check-layers), what it is called, and the environment of a rank that
 * depends on where it runs. */
#ifndef HOST_H
#define HOST_H
#include "group/group.h"
#include "host/gpus.h"

/* Has the group named hosts? Else it has this machine. */
bool hosts_named(const struct group *g);
/* Are all of them this machine? */
bool hosts_here(const struct group *g);
/* Do its ranks meet on this machine, where only its user can reach the store? */
bool hosts_private(const struct group *g);

/* Is it one of `hosts`? Else it is this machine. */
bool host_is_named(const struct host *h);
/* Do its processes run on another machine? Not before its agent is started. NULL-safe. */
bool host_is_far(const struct host *h);
/* The host of a rank: where it was placed, or else the one that has room for all; NULL: none. */
struct host *host_of_rank(const struct rank *k);
/* The pid of a rank's process if it runs on this machine; 0 if it runs elsewhere or does not exist.
 * Everything that reads /proc or the memory of a rank must use this. */
pid_t host_local_pid(const struct rank *k);
/* Gets the host's agent as the group's settings require. Returns NULL with *e set on failure. */
struct agent *host_agent(const struct group *g, const struct host *h, struct err *e);
/* The agent that says which GPUs a host has; NULL: it was never started. */
struct agent *host_reporter(const struct host *h);
/* The GPUs of a host that words name, as its ranks are told. Other hosts are not asked: *own, which
 * the caller frees, has the words as they are. Returns 0, or -errno with *e set. */
int host_choose_gpus(const struct host *h, const char *words, struct gpus *out,
    struct nvml_gpu **own, struct err *e);

/* What it is called: its name in `hosts`, or what this machine calls itself; "-": not known yet, or
 * there is no host. */
const char *host_label(const struct host *h);
/* The same within a sentence: its name, or "this machine", also if there is no host. */
const char *host_in_words(const struct host *h);
/* Prefixes an error with the name of the host that it is of. */
void host_blame(const struct host *h, struct err *e);
/* Appends the ranks that have no place and the hosts they ran on, as "2 (b), 3 (b)". */
void hosts_lacking(const struct group *g, struct buf *out);

/* Where the ranks reach the store: appends a name or an address. */
void host_env_master(const struct group *g, struct buf *out);
/* Does each rank see only its own GPU, as device 0? */
bool host_env_sees_one(const struct group *g);
/* LOCAL_RANK, as in cuda:LOCAL_RANK. */
int host_env_local_rank(const struct rank *k);
/* LOCAL_WORLD_SIZE. */
int host_env_local_size(const struct rank *k);
/* Appends NAME=VALUE entries, each terminated by NUL: the rank's index on its host, the host's
 * index among all hosts, and MASTER_ADDR and MASTER_PORT. */
void host_env_place(const struct rank *k, struct buf *env);
/* Appends entries for the engine only: the private store, and another host, from which the engine
 * finds the network interface to use. */
void host_env_store(const struct rank *k, struct buf *env);
/* Appends entries for the engine only, for programs on other hosts: the name of the host, where
 * files that come with a program go, and the directory that replaces the caller's. */
void host_env_program(const struct rank *k, struct buf *env);
/* Appends entries in the same format: CUDA_VISIBLE_DEVICES and what NCCL needs. */
void host_env_gpus(const struct rank *k, struct buf *env);

#endif
