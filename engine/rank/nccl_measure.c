/*
 * A rank sends small whole numbers that depend on the index, on the rank and on the check, so that
 * every sum is exact and data of another rank or of an earlier check is detected.
 */
#include "rank/nccl_measure.h"
#include "rank/cuda.h"
#include <errno.h>
#include <string.h>

/* Sums over up to RANKS_EXACT ranks are exact in a float. */
enum { PERIOD = 61, RANK_PERIOD = 509, RANKS_EXACT = 16384, FLOAT_EXACT = 1 << 24 };

enum { ITEM = sizeof(float), STAGED = NCCL_STAGING / ITEM };

/* What each check adds to the numbers: the one before the timed rounds, and the one after them. */
static const unsigned checks[] = {1, 2};
static const float stale = -1; /* fills a buffer before it receives */

struct buffers {
	uint64_t sent, received; /* addresses */
	size_t received_count;
};

_Static_assert(RANKS_EXACT *(PERIOD + RANK_PERIOD + 2) < FLOAT_EXACT, "a sum is not exact");

static float
number(size_t i, int rank, unsigned added)
{
	return (float)(i % PERIOD + (size_t)rank + added);
}

/* ---- the operations: what is queued on the stream, and the expected result ---- */

typedef int begin_fn(
    struct nccl_link *l, const struct measure *m, const struct nccl_data *d, struct err *e);
typedef float expect_fn(
    const struct nccl_link *l, const struct measure *m, size_t i, unsigned added);

static int
begin_all_reduce(
    struct nccl_link *l, const struct measure *m, const struct nccl_data *d, struct err *e)
{
	return nccl_all_reduce(l->comm, l->stream, d, e);
}

static float
expect_all_reduce(const struct nccl_link *l, const struct measure *m, size_t i, unsigned added)
{
	size_t n = (size_t)l->ranks, period = RANK_PERIOD, rest = n % period;
	size_t of_ranks =
	    n / period * (period * (period - 1) / 2) + (rest ? rest * (rest - 1) / 2 : 0);

	return (float)(n * (i % PERIOD) + of_ranks + n * added);
}

static int
begin_all_gather(
    struct nccl_link *l, const struct measure *m, const struct nccl_data *d, struct err *e)
{
	return nccl_all_gather(l->comm, l->stream, d, e);
}

static float
expect_all_gather(const struct nccl_link *l, const struct measure *m, size_t i, unsigned added)
{
	return number(i % m->count, (int)(i / m->count), added);
}

static int
begin_broadcast(
    struct nccl_link *l, const struct measure *m, const struct nccl_data *d, struct err *e)
{
	return nccl_broadcast(l->comm, l->stream, d, 0, e);
}

static float
expect_broadcast(const struct nccl_link *l, const struct measure *m, size_t i, unsigned added)
{
	return number(i, 0, added);
}

static int
begin_sendrecv(
    struct nccl_link *l, const struct measure *m, const struct nccl_data *d, struct err *e)
{
	return nccl_exchange(l->comm, l->stream, d, m->receiver, m->sender, e);
}

static float
expect_sendrecv(const struct nccl_link *l, const struct measure *m, size_t i, unsigned added)
{
	return number(i, m->sender, added);
}

static const struct kind {
	const char *name;
	begin_fn *begin;
	expect_fn *expect;
} kinds[MEASURE_KINDS] = {
    [MEASURE_ALL_REDUCE] = {"all_reduce", begin_all_reduce, expect_all_reduce},
    [MEASURE_ALL_GATHER] = {"all_gather", begin_all_gather, expect_all_gather},
    [MEASURE_BROADCAST] = {"broadcast", begin_broadcast, expect_broadcast},
    [MEASURE_SENDRECV] = {"sendrecv", begin_sendrecv, expect_sendrecv},
    [MEASURE_BARRIER] = {"barrier", NULL, NULL},
};

enum measure_kind
nccl_measure_kind(const char *name)
{
	int i = 0;

	while (i < MEASURE_KINDS && strcmp(kinds[i].name, name) != 0)
		i++;
	return i;
}

static int
operate(struct nccl_link *l, const struct measure *m, const struct buffers *b, struct err *e)
{
	struct nccl_data d = {b->sent, b->received, m->count};
	int r = kinds[m->kind].begin(l, m, &d, e);

	return r < 0 ? r : nccl_link_settle(l, e);
}

/* ---- numbers in and out, piece by piece ---- */

static int
fill(struct nccl_link *l, uint64_t address, size_t count, float base, int period, struct err *e)
{
	float *staged = (float *)(void *)l->staging;

	for (size_t at = 0; at < count; at += STAGED) {
		size_t n = MIN(count - at, (size_t)STAGED);

		for (size_t i = 0; i < n; i++)
			staged[i] = base + (period ? (float)((at + i) % (size_t)period) : 0);
		if (cuda_copy_in(l->stream, address + at * ITEM, staged, n * ITEM, e) < 0 ||
		    nccl_link_finish(l, e) < 0)
			return -e->no;
	}
	return 0;
}

static int
compare(
    struct nccl_link *l, struct measure *m, const struct buffers *b, unsigned added, struct err *e)
{
	const float *staged = (const float *)(const void *)l->staging;

	for (size_t at = 0; at < b->received_count; at += STAGED) {
		size_t n = MIN(b->received_count - at, (size_t)STAGED);

		if (cuda_copy_out(l->stream, l->staging, b->received + at * ITEM, n * ITEM, e) <
			0 ||
		    nccl_link_finish(l, e) < 0)
			return -e->no;
		for (size_t i = 0; i < n; i++)
			m->wrong += staged[i] != kinds[m->kind].expect(l, m, at + i, added);
	}
	return 0;
}

static int
check(
    struct nccl_link *l, struct measure *m, const struct buffers *b, unsigned added, struct err *e)
{
	int rank = m->kind == MEASURE_ALL_REDUCE ? l->rank % RANK_PERIOD : l->rank;

	if (fill(l, b->sent, m->count, number(0, rank, added), PERIOD, e) < 0 ||
	    fill(l, b->received, b->received_count, stale, 0, e) < 0 || operate(l, m, b, e) < 0 ||
	    nccl_link_finish(l, e) < 0)
		return -e->no;
	return compare(l, m, b, added, e);
}

/* ---- the measurement ---- */

/* Waits until all ranks have reached this point. */
static int
meet(struct nccl_link *l, uint64_t spare, struct err *e)
{
	struct nccl_data d = {spare, spare, 1};
	int r = nccl_all_reduce(l->comm, l->stream, &d, e);

	return r < 0 ? r : nccl_link_finish(l, e);
}

static int
time_rounds(struct nccl_link *l, struct measure *m, const struct buffers *b, struct err *e)
{
	uint64_t begin;

	if (meet(l, b->sent, e) < 0)
		return -e->no;
	if (m->kind == MEASURE_BARRIER)
		return 0;
	begin = now_ns();
	for (unsigned i = 0; i < m->repeats; i++)
		if (operate(l, m, b, e) < 0)
			return -e->no;
	if (nccl_link_finish(l, e) < 0)
		return -e->no;
	m->us = (double)(now_ns() - begin) / (double)NS_PER_US / m->repeats;
	return 0;
}

static int
measure(struct nccl_link *l, struct measure *m, const struct buffers *b, struct err *e)
{
	bool works = m->kind != MEASURE_BARRIER;

	if (works && check(l, m, b, checks[0], e) < 0)
		return -e->no;
	if (time_rounds(l, m, b, e) < 0)
		return -e->no;
	return works ? check(l, m, b, checks[1], e) : 0;
}

int
nccl_measure(struct nccl_link *l, struct measure *m, struct err *e)
{
	struct buffers b = {.received_count = m->count};
	int r;

	if (!l->comm || !m->count || !m->repeats)
		return fail(e, EINVAL, "NCCL: %s", l->comm ? "nothing to measure" : "no link");
	if (m->kind == MEASURE_ALL_GATHER)
		b.received_count *= (size_t)l->ranks;
	m->us = 0;
	m->wrong = 0;
	r = cuda_alloc(&b.sent, m->count * ITEM, e);
	if (r == 0)
		r = cuda_alloc(&b.received, b.received_count * ITEM, e);
	if (r == 0)
		r = measure(l, m, &b, e);
	if (r < 0)
		nccl_link_close(l); /* so that nothing uses the memory any more */
	if (b.received)
		cuda_free(b.received);
	if (b.sent)
		cuda_free(b.sent);
	return r;
}
