/* What one rank gave of an object: where its bytes are, and what keeps them there. */
#ifndef GOT_H
#define GOT_H
#include "copy.h"
#include "host/agent.h"

/* Who is asked: an engine at the agent. */
struct pull_rank {
	int number; /* for messages */
	struct agent *agent;
	int slot;
	pid_t pid;     /* 0: its process is not on this machine */
	pid_t far_pid; /* where it is */
};

/* How the bytes are wanted. */
enum got_use {
	GOT_READ,   /* piece by piece, wherever they are */
	GOT_HOST,   /* all of them, in memory of this host */
	GOT_COMBINE /* so, or left on a GPU, to be combined there */
};

struct got {
	struct pull *p;		       /* whose it is */
	struct pull_rank rank;	       /* the first of those that are asked */
	const struct pull_rank *ranks; /* all of them; several: their host combines their parts */
	int rank_count;
	enum got_use use;
	uint32_t tag;	 /* of the question; 0: there is none, or it is answered */
	uint32_t handle; /* to be freed; 0: none */
	struct buf head;
	int fd;
	int pidfd, pidfd_errno; /* opened before the question: who answers it had the pid then */
	struct source source;
	struct device *device; /* its bytes are on a GPU; NULL: they are in the source */
	struct remote *remote; /* or on another host */
	bool on_gpu;	       /* GOT_COMBINE: they were left there, */
	unsigned gpu;	       /* on this one of the rank's own numbers */
	uint64_t size;
	struct err err;
};

/* Opens what a rank's memory is read by. Before it is asked. */
void got_open(struct got *x);
/* Takes what an Rget brings. 0, or -errno: it can't be used so; the text is in x->err. */
int got_take(struct got *x, struct msg *m);
/* Lets go of all of it, there and here. */
void got_free(struct got *x);

#endif
