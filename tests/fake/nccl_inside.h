/* What the files of the fake NCCL share. */
#ifndef FAKE_NCCL_INSIDE_H
#define FAKE_NCCL_INSIDE_H
#include "rank/nccl_api.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RANKS_MAX = 4, PIECE = 64 << 10, OPS_MAX = 64 };

/* From one rank to another one: a piece at a time. */
struct channel {
	atomic_uint_fast64_t sent, taken; /* pieces */
	size_t n;
	char bytes[PIECE];
};

/* The file that the ranks of a communicator share. */
struct meeting {
	atomic_int joined;
	struct channel channels[RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

struct ncclComm {
	struct meeting *meeting;
	int rank, ranks;
	bool blocking;
	atomic_int unseen; /* so often it says that it is in progress */
	atomic_int uses;   /* operations that are not over, and the owner */
	atomic_bool aborted, revoked, finalized;
};

/* A transfer with one peer. */
struct transfer {
	int peer;
	bool out;
	char *bytes;
	size_t n, done;
};

/* What is under way in a stream. */
struct operation {
	struct ncclComm *comm;
	void (*finish)(struct operation *o); /* when all transfers are done; NULL */
	struct transfer transfers[2 * RANKS_MAX];
	int count;
	char *from, *to, *received[RANKS_MAX]; /* what a sum is made of, by rank */
	size_t elements;
	unsigned type, op;
	char *spare; /* memory of its own */
};

enum { WORDS_MAX = 16, FAILURES_MAX = 16 };

/* What tests have said, and what came of it. */
struct fake_nccl {
	pthread_mutex_t lock;
	bool read;

	struct failure {
		char call[64];
		unsigned error;
		int after, times;
	} failures[FAILURES_MAX];

	int failure_count, made, live, aborted, revoked;
	atomic_bool stalls_revoke;
	atomic_int stalled;
	unsigned async;
	char last[200];
	void *(*bytes)(uint64_t, size_t);
	void (*enqueue)(struct CUstream_st *, void (*)(void *), void *);
};

extern struct fake_nccl fake_nccl;

/* What this call is to say. */
unsigned fake_nccl_say(const char *call);

/* What $FAKE_NCCL says of links. */
struct link_words {
	int from, to;
	bool wrong;
	unsigned slow_us;
};

extern struct link_words fake_links[WORDS_MAX];
extern int fake_link_count;

/* Moves the bytes of all transfers, whichever can go on first, until all are done or it is ended.
 */
void fake_nccl_transfer(struct operation *o);
bool fake_nccl_ended(const struct ncclComm *c); /* aborted or revoked */
/* Combines what was received, in the order of the ranks. As on a GPU a minimum or maximum of NaN
 * and a number is the number. */
void fake_nccl_combine(struct operation *o);
size_t fake_nccl_size(unsigned type); /* of an element; 0: no such type */

#endif
