/* Shared by the files of the fake NCCL. */
#ifndef FAKE_NCCL_INSIDE_H
#define FAKE_NCCL_INSIDE_H
#include "rank/nccl_api.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RANKS_MAX = 4, PIECE = 64 << 10, OPS_MAX = 64 };

/* From one rank to another, one piece at a time. */
struct channel {
	atomic_uint_fast64_t sent, taken; /* numbers of pieces */
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
	atomic_int unseen; /* how often it still reports that it is in progress */
	atomic_int uses;   /* unfinished operations, and the owner */
	atomic_bool aborted, revoked, finalized;
};

/* A transfer with one peer. */
struct transfer {
	int peer;
	bool out;
	char *bytes;
	size_t n, done;
};

/* An operation in flight on a stream. */
struct operation {
	struct ncclComm *comm;
	void (*finish)(
	    struct operation *o); /* called when all transfers are done; NULL: nothing to do */
	struct transfer transfers[2 * RANKS_MAX];
	int count;
	char *from, *to, *received[RANKS_MAX]; /* the parts of a reduction, by rank */
	size_t elements;
	unsigned type, op;
	char *spare; /* scratch memory of its own; NULL: none */
};

enum { WORDS_MAX = 16, FAILURES_MAX = 16 };

/* What tests have asked for, and counters. */
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

/* The result that this call should return. */
unsigned fake_nccl_say(const char *call);

/* The words of $FAKE_NCCL about a link. */
struct link_words {
	int from, to;
	bool wrong;
	unsigned slow_us;
};

extern struct link_words fake_links[WORDS_MAX];
extern int fake_link_count;

/* Moves the bytes of all transfers, in whichever order they can proceed, until all are done or the
 * communicator is aborted or revoked. */
void fake_nccl_transfer(struct operation *o);
bool fake_nccl_ended(const struct ncclComm *c); /* was it aborted or revoked? */
/* Combines the received parts in the order of the ranks. As on a GPU, the minimum or maximum of NaN
 * and a number is the number. */
void fake_nccl_combine(struct operation *o);
size_t fake_nccl_size(unsigned type); /* of an element, in bytes; 0: no such type */

#endif
