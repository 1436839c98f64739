/* What a rank is told of its place: the variables that torchrun sets, and the GPUs that it sees. */
#ifndef HOST_ENV_H
#define HOST_ENV_H
#include "group/group.h"

/* Where the ranks reach the store: a name or an address. */
void host_env_master(const struct group *g, struct buf *out);
/* Is that on this machine, where nobody but its user reaches it? */
bool host_env_is_private(const struct group *g);
/* LOCAL_RANK, for cuda:LOCAL_RANK. */
int host_env_local_rank(const struct rank *k);
/* NAME=VALUE, NUL behind each: the rank's number on its host, that host's among all, and
 * MASTER_ADDR and MASTER_PORT. */
void host_env_place(const struct rank *k, struct buf *env);
/* For the engine alone: the private store, and another host, to find the interface to. */
void host_env_store(const struct rank *k, struct buf *env);
/* Likewise: CUDA_VISIBLE_DEVICES and what NCCL must know. */
void host_env_gpus(const struct rank *k, struct buf *env);

#endif
