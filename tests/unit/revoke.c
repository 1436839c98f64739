/*
 * Communicators with another owner, on the fakes: a rank that waits in one is released while Python
 * does not run, and the owner frees it then; if Python comes first, they are left to it.
 */
#define _GNU_SOURCE
#include "fake_nccl.h"
#include "rank/nccl_api.h"
#include "rank/nccl_link.h"
#include "rank/rank.h"
#include <errno.h>
#include <unistd.h>

enum { LATER_MS = 600 }; /* longer than Python is given */

static struct loop *loop;
static int (*revoked)(void);
static void (*stall)(int);
static int (*stalled)(void);

static struct {
	struct nccl_link link;
	uint64_t memory;
	struct nccl_data data;
} owner; /* stands in for torch */

/* Rank 0 waits alone in a collective; the other rank has joined and does nothing. */
static void
wait_alone(void)
{
	static const float numbers[100];
	void *handle = dlopen(getenv("DDIP_NCCL"), RTLD_NOW | RTLD_NOLOAD);
	struct revocable row;
	struct err e = {0};

	find_fake(handle, "fake_nccl_revoked", &revoked);
	find_fake(handle, "fake_nccl_stall_revoke", &stall);
	find_fake(handle, "fake_nccl_stalled", &stalled);
	CHECK(nccl_link_open(&owner.link, the_id(), rank, ranks, 0, &e) == 0);
	if (rank != 0)
		return;
	loop = loop_new();
	rank_revoke_init(loop);
	owner.memory = on_gpu(numbers, sizeof(numbers));
	owner.data = (struct nccl_data){owner.memory, owner.memory, ARRAY_LEN(numbers)};
	CHECK(nccl_all_reduce(owner.link.comm, owner.link.stream, &owner.data, &e) == 0);
	row = (struct revocable){owner.link.comm, 0};
	rank_revoke_set(&row, 1, rank_revoke_claims());
}

static void
end(void)
{
	meet();
	nccl_link_close(&owner.link);
	if (owner.memory)
		cuda_free(owner.memory);
	free(owner.link.staging);
	if (loop)
		loop_free(loop);
	CHECK(fake.live() == 0 && fake.memory() == 0);
}

/* Does the work on the stream end, within a second or ten? */
static bool
stream_ends(void)
{
	enum { TRIES = 100000 };
	struct err e = {0};

	for (int i = 0; i < TRIES && cuda_stream_done(owner.link.stream, &e) == 0; i++)
		usleep(LOOK_US);
	return cuda_stream_done(owner.link.stream, &e) == 1;
}

/* Claims; a claim that waited for the thread in vain, as on a busy machine, is repeated. */
static bool
claims(void)
{
	enum { TRIES = 30 }; /* two seconds each */

	bool claimed = false;

	for (int i = 0; i < TRIES && !claimed; i++)
		claimed = rank_revoke_claim();
	return claimed;
}

static void
rank_is_freed(void)
{
	struct err e = {0};

	wait_alone();
	if (rank == 0) {
		CHECK(cuda_stream_done(owner.link.stream, &e) == 0);
		rank_revoke_later();
		rank_revoke_later(); /* asking twice is harmless */
		while (!revoked())
			loop_once(loop, 1);
		CHECK(claims());
		CHECK(stream_ends());
		CHECK(nccl_all_reduce(owner.link.comm, owner.link.stream, &owner.data, &e) < 0);
		CHECK(fake.live() == 1 && fake.aborted() == 0 && revoked() == 1);
	}
	end(); /* the owner aborts it */
}

static void
on_time(void *arg)
{
	*(bool *)arg = true;
}

/* The timer fires, but the communicators must not be touched any more. */
static void
rank_is_python_s(void)
{
	struct revocable row;
	bool over = false;

	wait_alone();
	row = (struct revocable){owner.link.comm, 0};
	if (rank == 0) {
		rank_revoke_later();
		CHECK(rank_revoke_claim());
		rank_revoke_set(&row, 1, rank_revoke_claims()); /* they may be freed from now on, */
		rank_revoke_release();
		rank_revoke_set(&row, 1, rank_revoke_claims() - 1); /* or were freed since */
		rank_revoke_later();
		loop_timer(loop, LATER_MS, on_time, &over);
		while (!over)
			loop_once(loop, -1);
		CHECK(revoked() == 0);
	}
	end();
}

/* The owner learns that it must not free them while they are being revoked. */
static void
rank_must_not_free(void)
{
	wait_alone();
	if (rank == 0) {
		stall(1);
		rank_revoke_later();
		while (!stalled())
			loop_once(loop, 1);
		CHECK(!rank_revoke_claim());
		stall(0);
		CHECK(claims() && revoked() == 1);
	}
	end();
}

static void
rank_has_one_library(void)
{
	struct err e = {0};

	CHECK(nccl_can_revoke(getenv("DDIP_NCCL"), &e) == 0);
	CHECK(nccl_can_revoke(getenv("DDIP_CUDART"), &e) == -EOPNOTSUPP);
	CHECK(nccl_can_revoke("libtorch_cuda.so", &e) == -EOPNOTSUPP);
	CHECK_STR(e.text, "NCCL: libtorch_cuda.so has no ncclCommRevoke that is ours");
}

int
main(void)
{
	prepare_ranks("/unit/revoke");
	run_ranks(2, "", rank_is_freed);
	run_ranks(2, "", rank_is_python_s);
	run_ranks(2, "", rank_must_not_free);
	run_ranks(1, "", rank_has_one_library);
	return CHECK_DONE();
}
