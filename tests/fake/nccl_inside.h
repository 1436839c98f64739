/* What the files of the fake NCCL share. */
#ifndef FAKE_NCCL_INSIDE_H
#define FAKE_NCCL_INSIDE_H
#include "rank/nccl_api.h"
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
	atomic_bool aborted, finalized;
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
	char *spare; /* memory of its own */
};

enum { WORDS_MAX = 16 };

/* What $FAKE_NCCL says of links. */
struct link_words {
	int from, to;
	bool wrong;
	unsigned slow_us;
};

extern struct link_words fake_links[WORDS_MAX];
extern int fake_link_count;

/* Moves the bytes of all transfers, whichever can go on first, until all are done or the
 * communicator is aborted. */
void fake_nccl_transfer(struct operation *o);
/* Adds what was received, in the order of the ranks. */
void fake_nccl_sum(struct operation *o);
size_t fake_nccl_size(unsigned type); /* of an element; 0: no such type */

#endif
