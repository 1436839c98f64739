/*
 * The engine's own communicator, on the fake NCCL and the fake CUDA runtime: it measures and checks
 * links, a failing call is reported with its text, and cancelling never blocks. The ranks are
 * processes.
 */
#define _GNU_SOURCE
#include "check.h"
#include "fake_nccl.h"
#include "rank/nccl_api.h"
#include "rank/nccl_measure.h"
#include "rank/rank.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLOW_US = 20000, SLICE_MS = 20, REPEATS = 2 };

void
rank_link_send(const struct msg *m)
{
}

static void
leave(struct nccl_link *l)
{
	atomic_fetch_add(&shared->over, 1);
	while (atomic_load(&shared->over) < ranks)
		sched_yield();
	nccl_link_close(l);
	CHECK(fake.live() == 0 && fake.memory() == 0);
	free(l->staging);
}

static struct measure
measured(struct nccl_link *l, enum measure_kind kind, size_t count, int to, int from)
{
	struct measure m = {
	    .kind = kind, .count = count, .repeats = REPEATS, .receiver = to, .sender = from};
	struct err e = {0};

	CHECK(nccl_measure(l, &m, &e) == 0);
	CHECK_STR(e.text, "");
	return m;
}

/* All collectives give correct results, also over several pieces; the ring, and a pair while one
 * rank rests. */
static void
rank_measures(void)
{
	static const size_t counts[] = {1, 1000, NCCL_STAGING / sizeof(float) + 7};
	struct nccl_link l = {0};
	struct err e = {0};
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

	CHECK(nccl_link_open(&l, the_id(), rank, ranks, rank % 2, &e) == 0);
	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		for (int kind = 0; kind < (ranks > 1 ? MEASURE_BARRIER : MEASURE_SENDRECV);
		     kind++) {
			struct measure m = measured(&l, kind, counts[i], to, from);

			CHECK(m.wrong == 0 && m.us > 0);
		}
	if (ranks == 3) {
		struct measure m = measured(
		    &l, rank == 1 ? MEASURE_BARRIER : MEASURE_SENDRECV, 500, 2 - rank, 2 - rank);

		CHECK(m.wrong == 0 && (m.us > 0) == (rank != 1));
	}
	CHECK(nccl_link_leave(&l, &e) == 0 && fake.aborted() == 0);
	CHECK(nccl_link_leave(&l, &e) == -EINVAL);
	leave(&l);
}

/* A slow link, and one that corrupts data, are noticed by the rank that receives over it. */
static void
rank_sees_links(void)
{
	struct nccl_link l = {0};
	struct measure m;
	struct err e = {0};
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

	CHECK(nccl_link_open(&l, the_id(), rank, ranks, 0, &e) == 0);
	m = measured(&l, MEASURE_SENDRECV, 100, to, from);
	CHECK(m.wrong == (rank == 2 ? 2 : 0));
	/* the first piece may have arrived when the receiver's clock starts */
	CHECK(rank != 1 || m.us >= (double)SLOW_US * (REPEATS - 1) / REPEATS);
	m = measured(&l, MEASURE_ALL_REDUCE, 100, to, from);
	CHECK(m.wrong == (rank == 2 ? 2 : 0));
	leave(&l);
}

/* ---- failures ---- */

/* Each failing call reports its name and NCCL's message; then a new communicator works. */
static void
rank_fails(void)
{
	static const char *const names[] = {"ncclCommInitRankConfig", "ncclCommGetAsyncError",
	    "ncclAllReduce", "ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv",
	    "ncclGroupStart", "ncclGroupEnd", "ncclCommFinalize", "ncclCommDestroy"};

	static const enum measure_kind kinds[] = {
	    MEASURE_ALL_REDUCE, MEASURE_ALL_GATHER, MEASURE_BROADCAST, MEASURE_SENDRECV};
	struct nccl_link l = {0};
	char id[NCCL_ID_SIZE];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char *want =
		    xasprintf("NCCL: %s: internal error: %s was told to fail", names[i], names[i]);
		struct err e = {0};
		int r;

		CHECK(nccl_id(id, &e) == 0);
		fake.fail(names[i], dncclInternalError, i == 1 ? 1 : 0, 1);
		r = nccl_link_open(&l, id, 0, 1, 0, &e);
		for (size_t k = 0; r == 0 && k < ARRAY_LEN(kinds); k++) {
			struct measure m = {.kind = kinds[k], .count = 10, .repeats = 1};

			r = nccl_measure(&l, &m, &e);
		}
		if (r == 0)
			r = nccl_link_leave(&l, &e);
		CHECK(r == -EREMOTEIO);
		CHECK_STR(e.text, want);
		CHECK(!l.comm && fake.live() == 0 && fake.memory() == 0);
		free(want);
	}
	CHECK(nccl_id(id, &(struct err){0}) == 0);
	CHECK(nccl_link_open(&l, id, 0, 1, 0, &(struct err){0}) == 0);
	leave(&l);
}

static void
rank_fails_without(void)
{
	struct nccl_link l = {0};
	struct measure m = {.kind = MEASURE_ALL_REDUCE, .count = 1, .repeats = 1};
	struct err e = {0};
	char id[NCCL_ID_SIZE];

	CHECK(nccl_id(id, &e) == -EHOSTDOWN);
	CHECK_STR(e.text, "NCCL: ncclGetUniqueId: unhandled system error: ncclGetUniqueId was told "
			  "to fail");
	CHECK(nccl_measure(&l, &m, &e) == -EINVAL);
	CHECK(nccl_link_open(&l, id, 0, 1, 99, &e) == -EREMOTEIO); /* no such GPU */
	CHECK(strncmp(e.text, "cudaSetDevice: ", 15) == 0);
	free(l.staging);
}

/* The communicator reports a peer's failure later. */
static void
rank_hears_of_peer(void)
{
	struct nccl_link l = {0};
	struct err e = {0};

	CHECK(nccl_link_open(&l, the_id(), rank, ranks, 0, &e) == -EHOSTDOWN);
	CHECK_STR(
	    e.text, "NCCL: a communicator: remote process exited or there was a network error");
	leave(&l);
}

/* ---- the thread ---- */

/* Retries while the thread is busy with what was cancelled. */
static int
finish(const struct nccl_job *job, struct err *e)
{
	int r;

	while ((r = rank_nccl_begin(job, e)) == -EBUSY)
		sched_yield();
	while (r == 0)
		r = rank_nccl_wait(SLICE_MS, e);
	return r;
}

static void
join(struct nccl_job *job, const char *id)
{
	*job = (struct nccl_job){.kind = NCCL_JOIN, .rank = rank, .ranks = ranks};
	memcpy(job->id, id, sizeof(job->id));
}

/* One rank of two waits alone, in joining and in a collective: it is cancelled, and goes on. */
static void
rank_is_cancelled(void)
{
	static const struct nccl_job away = {.kind = NCCL_LEAVE}, now = {.kind = NCCL_ABORT};
	struct measure m = {.kind = MEASURE_ALL_REDUCE, .count = 100, .repeats = 1};
	struct nccl_job job, measures = {.kind = NCCL_MEASURE, .measure = &m};
	char lonely[NCCL_ID_SIZE];
	struct err e = {0};

	CHECK(nccl_id(lonely, &e) == 0);
	join(&job, lonely);
	CHECK(rank_nccl_begin(&job, &e) == 0);
	CHECK(rank_nccl_wait(SLICE_MS, &e) == 0);
	CHECK(rank_nccl_begin(&job, &e) == -EBUSY);
	rank_nccl_cancel();
	join(&job, the_id());
	CHECK(finish(&job, &e) == 1);
	CHECK(fake.live() == 1); /* the lonely communicator has been freed */
	unlink(lonely);
	if (rank == 0) {
		CHECK(rank_nccl_begin(&measures, &e) == 0);
		CHECK(rank_nccl_wait(SLICE_MS, &e) == 0);
		rank_nccl_cancel();
		CHECK(finish(&measures, &e) == -EINVAL);
		CHECK(fake.live() == 0 && fake.memory() == 0);
	}
	CHECK(finish(rank == 0 ? &away : &now, &e) == (rank == 0 ? -EINVAL : 1));
	CHECK(fake.live() == 0);
	_exit(CHECK_DONE()); /* the thread keeps running: a leak check would trip over it */
}

/* The thread is stuck where nothing can cancel it: no caller waits for ever, and the next one gets
 * an error. */
static void
rank_gets_stuck(void)
{
	void (*stall)(int);
	struct nccl_job job;
	struct err e = {0};

	find_fake(dlopen(getenv("DDIP_CUDART"), RTLD_NOW | RTLD_NOLOAD), "fake_cuda_stall", &stall);
	stall(1);
	join(&job, the_id());
	CHECK(rank_nccl_begin(&job, &e) == 0);
	CHECK(rank_nccl_wait(SLICE_MS, &e) == 0);
	rank_nccl_cancel();
	CHECK(rank_nccl_begin(&job, &e) == -EBUSY);
	CHECK_STR(e.text, "NCCL does not come back from what was interrupted");
	stall(0);
	while (rank_nccl_begin(&job, &e) == -EBUSY)
		sched_yield();
	while (rank_nccl_wait(SLICE_MS, &e) == 0)
		;
	unlink(shared->id);
	_exit(CHECK_DONE());
}

int
main(void)
{
	prepare_ranks("/unit/nccl");
	run_ranks(1, "", rank_measures);
	run_ranks(2, "", rank_measures);
	run_ranks(3, "", rank_measures);
	run_ranks(3, "slow=0-1:20000 wrong=1-2", rank_sees_links);
	run_ranks(1, "", rank_fails);
	run_ranks(1, "fail=ncclGetUniqueId:2", rank_fails_without);
	run_ranks(2, "async=6", rank_hears_of_peer);
	run_ranks(2, "", rank_is_cancelled);
	run_ranks(1, "", rank_gets_stuck);
	return CHECK_DONE();
}
