/* What one rank returned for an object: where its bytes are, and what keeps them there. */
#ifndef GOT_H
#define GOT_H
#include "host/agent.h"
#include "source.h"

/* A rank to ask: an engine at the agent. */
struct pull_rank {
	int number; /* for messages */
	struct agent *agent;
	int slot;
	pid_t pid;     /* 0: its process is not on this machine */
	bool sees_one; /* GPU: that of no other rank, or one that NCCL accepts from several */
};

/* How the bytes are needed. */
enum got_use {
	GOT_READ,    /* piece by piece, wherever they are */
	GOT_HOST,    /* all of them, in memory of this host */
	GOT_COMBINE, /* the same, or left on a GPU to be combined there */
	GOT_HEAD     /* only a head, if the bytes after it are the result that was asked about */
};

struct got {
	struct pull *p;		       /* the owner */
	struct pull_rank rank;	       /* the first of the ranks that are asked */
	const struct pull_rank *ranks; /* all of them; several: their host combines their parts */
	int rank_count;
	enum got_use use;
	uint64_t tag;	 /* of the pending request; 0: none */
	uint32_t handle; /* to be freed; 0: none */
	struct buf head;
	int fd;
	/* opened before the request: the pid was still that of the process that replies */
	int pidfd, pidfd_errno;
	struct source source; /* owns its provider */
	bool on_gpu;	      /* GOT_COMBINE: the bytes were left on a GPU, */
	unsigned gpu;	      /* this one, as the rank numbers them */
	bool head_only;	      /* GOT_HEAD: so it is */
	uint64_t size;
	struct err err;
};

/* Opens the pidfd for reading the rank's memory. Call before the request. */
void got_open(struct got *x);
/* Takes over the contents of an Rget. Returns 0, or -errno with x->err if it cannot be used. */
int got_take(struct got *x, struct msg *m);
/* Releases everything, here and in the rank. */
void got_free(struct got *x);

#endif
