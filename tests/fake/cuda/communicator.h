/*
 * Shared by the files of the fake NCCL that the CUDA build of torch runs on, see communicator.cpp.
 * Its calls are declared by NVIDIA's own header, the functions for tests by tests/fake/nccl.h.
 */
#ifndef FAKE_COMMUNICATOR_H
#define FAKE_COMMUNICATOR_H
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <nccl.h>
#include <string>
#include <vector>
extern "C" {
#include "../nccl.h"
void fake_nccl_word(const char *word); /* adds a word of $FAKE_NCCL */
void *fake_cuda_alias(const void *p);
int fake_cuda_is_device(const void *p);
int fake_cuda_is_lost(void);
void fake_cuda_enqueue(cudaStream_t s, void (*fn)(void *), void *arg);
}

namespace fake
{
constexpr size_t PIECE = 128 << 10;
constexpr int RANKS_MAX = 64, PAUSE_US = 40;

/* From one rank to one other: a piece is there while sent != taken. */
struct Channel {
	std::atomic<uint64_t> sent, taken;
	size_t n;
	char bytes[PIECE];
};

struct Post { /* what a rank says in a split */
	std::atomic<int> number;
	int color, key;
};

struct Meeting { /* the file in which the ranks meet; a new one is zero */
	std::atomic<int> joined;
	int gpu[RANKS_MAX];
	Post posts[2][RANKS_MAX];
	Channel channels[];
};
} // namespace fake

struct ncclComm {
	fake::Meeting *meeting;
	std::string name;
	size_t bytes; /* of the meeting */
	int rank, ranks, device, splits = 0;
	bool blocking;
	std::atomic<bool> owned{true}, gone{false}, aborted{false}, revoked{false},
	    finalized{false};
	std::atomic<int> uses{1}, flight{0}, running{0}; /* operations: launched, running */
	std::atomic<int> unseen{0}; /* how often it is in progress still, after a call */
	std::atomic<unsigned> error{0};
	/* Operations run in the order of their launch, whichever their streams. */
	std::atomic<uint64_t> tickets{0}, turn{0};

	bool ended() const
	{
		return aborted || revoked || fake_cuda_is_lost();
	}

	fake::Channel &channel(int from, int to)
	{
		return meeting->channels[from * ranks + to];
	}
};

namespace fake
{
struct Transfer {
	int peer;
	bool out;
	char *p;
	size_t n, done = 0;
};

/* Transfers to and from all peers at once, then the reduction of what came, or a copy of one's own
 * part. */
struct Operation {
	ncclComm *comm;
	cudaStream_t stream;
	uint64_t ticket = 0;
	bool p2p = false, reduces = false;
	std::vector<Transfer> transfers;
	char *from = nullptr, *to = nullptr;
	size_t own = 0, count = 0; /* bytes of one's own part; elements */
	ncclDataType_t type = ncclInt8;
	ncclRedOp_t op = ncclSum;
	std::vector<char> received;
	std::vector<char *> parts; /* of each rank, for the reduction */
};

size_t size_of(ncclDataType_t type);
/* Runs it and frees it; the argument is an Operation. */
void run(void *operation);
void reduce(Operation *o);
/* Keeps the text for ncclGetLastError(). Returns the result. */
ncclResult_t fail(ncclResult_t result, const char *text);
/* What this call is to fail with, by the test's word. */
ncclResult_t failure(const char *call);

/* What the test's words do to a piece from one rank to another: it waits, it is corrupted, it is
 * never sent. */
struct Link {
	int from, to;
	unsigned slow_us;
	bool wrong, hangs;
};

Link link_between(int from, int to);
unsigned delay_us(); /* of each operation */
/* Gives up one use of the communicator. */
void put(ncclComm *c);
} // namespace fake
#endif
