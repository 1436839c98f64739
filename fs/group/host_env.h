/* The environment of a rank that depends on where it runs: the variables that torchrun sets, and
 * the GPUs that it sees. */
#ifndef HOST_ENV_H
#define HOST_ENV_H
#include "group/group.h"

/* Where the ranks reach the store: appends a name or an address. */
void host_env_master(const struct group *g, struct buf *out);
/* Is the store on this machine, where only its user can reach it? */
bool host_env_is_private(const struct group *g);
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
