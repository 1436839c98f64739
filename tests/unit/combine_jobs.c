/*
 * The daemon's requests to combine by NCCL, on the fakes: a rank combines the object that it keeps
 * while it is otherwise idle; a peer that does not come, that dies, or whose result is no longer
 * wanted holds nothing up.
 */
#define _GNU_SOURCE
#include "fake_nccl.h"
#include "rank/rank.h"
#include <errno.h>

enum { TAG = 77, OTHER_TAG = 78 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int type, error_no; /* of the last reply */
	uint64_t tag;
	char id[NCCL_ID_SIZE];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void
rank_link_send(const struct msg *m)
{
	struct slice id;
	uint32_t no = 0;

	pthread_mutex_lock(&said.lock);
	said.type = m->type;
	said.tag = m->tag;
	if (m->type == Rerror && wire_unpack(m, Rerror, NULL, &no, NULL, NULL) == 0)
		said.error_no = (int)no;
	if (m->type == Rncclid && wire_unpack(m, Rncclid, NULL, &id) == 0 &&
	    id.n == sizeof(said.id))
		memcpy(said.id, id.p, id.n);
	pthread_cond_broadcast(&said.changed);
	pthread_mutex_unlock(&said.lock);
}

/* Waits for the reply. Returns its type; for an error its errno, negative. */
static int
answer(void)
{
	int type;

	pthread_mutex_lock(&said.lock);
	while (!said.type)
		pthread_cond_wait(&said.changed, &said.lock);
	type = said.type == Rerror ? -said.error_no : said.type;
	said.type = 0;
	CHECK(said.tag == TAG);
	pthread_mutex_unlock(&said.lock);
	return type;
}

static const int numbers[] = {5, -6, 70000};
static uint32_t handle;
static int out_fd = -1;

static int
ask(int by, int of, const char *op, const char *dtype)
{
	struct buf b = {0};
	struct err e = {0};
	struct msg m;
	int r;

	wire_pack(&b, Tcombine, 0, 0, TAG, handle, (uint32_t)by, (uint32_t)of,
	    (uint64_t)ARRAY_LEN(numbers), slice_text(op), slice_text(dtype),
	    (struct slice){shared->id, NCCL_ID_SIZE});
	CHECK(wire_frame(b.p, b.n, &m, NULL) > 0);
	m.fd = by == 0 ? dup(out_fd) : -1;
	r = rank_combine_begin(&m, &e);
	if (m.fd >= 0)
		close(m.fd);
	buf_free(&b);
	return r;
}

static int
ask_id(void)
{
	struct err e = {0};
	struct msg m = {.type = Tncclid, .tag = TAG, .fd = -1};
	int r = rank_combine_id(&m, &e);

	return r < 0 ? r : answer();
}

/* Makes this process a rank with a GPU, an object on it, and queues. */
static void
be_rank(void)
{
	struct err e = {0};

	rank_queue_init(&rank_main);
	rank_queue_init(&rank_service);
	CHECK(rank_device_open(NULL, &e) == 0);
	CHECK(cuda_use(0, &e) == 0);
	handle = rank_pin_add(&handle, on_gpu(numbers, sizeof(numbers)), sizeof(numbers), 0);
	out_fd = memfd_create("out", 0);
}

/* Asks rank 0 for an id and shares it. */
static void
new_id(void)
{
	meet();
	if (rank == 0) {
		CHECK(ask_id() == Rncclid);
		memcpy(shared->id, said.id, NCCL_ID_SIZE);
	}
	meet();
}

static void
give_work(uint64_t tag)
{
	struct msg m = {.type = Trun, .tag = tag, .fd = -1, .body = ""};

	rank_queue_put(&rank_main, &m);
}

static void
end_work(uint64_t tag)
{
	struct item *it;

	CHECK(rank_queue_try(&rank_main, &it) && it->m.tag == tag);
	free(it);
	CHECK(ask(rank, ranks, "sum", "int32") == -EBUSY);
	rank_queue_answered(tag + 1);
	CHECK(ask(rank, ranks, "sum", "int32") == -EBUSY);
	rank_queue_answered(tag);
}

static void
rank_answers(void)
{
	int got[ARRAY_LEN(numbers)];

	be_rank();
	new_id();
	CHECK(ask(rank, ranks, "sum", "bool") == -EINVAL);
	CHECK(ask(rank, ranks, "sum", "int64") == -EINVAL); /* more than the object has */
	CHECK(ask(ranks, ranks, "sum", "int32") == -EINVAL);
	give_work(5);
	CHECK(ask(rank, ranks, "sum", "int32") == -EBUSY);
	end_work(5);
	CHECK(ask(rank, ranks, "sum", "int32") == 0);
	CHECK(answer() == Rcombine);
	if (rank == 0) {
		CHECK(pread(out_fd, got, sizeof(got), 0) == sizeof(got));
		for (size_t i = 0; i < ARRAY_LEN(got); i++)
			CHECK(got[i] == ranks * numbers[i]);
	}
	CHECK(fake.live() == 0 && fake.aborted() == 0 && fake.memory() == 1);
	CHECK(rank_pin_drop(handle) == &handle); /* no reference is left */
	meet();
	_exit(CHECK_DONE()); /* the threads keep running: a leak check would trip over them */
}

/* Rank 0 waits for a peer that never comes, or has died, until it is told to stop. */
static void
rank_gives_way(void)
{
	static const uint32_t stops[] = {0, TAG};
	struct nccl_link l = {0};
	struct err e = {0};

	be_rank();
	for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
		new_id();
		if (rank != 0)
			continue;
		CHECK(ask(0, ranks, "sum", "int32") == 0);
		CHECK(ask(0, ranks, "sum", "int32") == -EBUSY);
		rank_nccl_stop(OTHER_TAG);
		rank_nccl_stop(stops[i]);
		CHECK(answer() == -EINTR);
		CHECK(fake.live() == 0 && fake.memory() == 1);
		unlink(shared->id);
	}
	new_id();
	if (rank == 1) { /* it joins, and exits before the ranks combine */
		CHECK(nccl_link_open(&l, shared->id, rank, ranks, 0, &e) == 0);
		_exit(CHECK_DONE());
	}
	CHECK(ask(0, ranks, "sum", "int32") == 0);
	while (fake.live() == 0)
		sched_yield();
	rank_nccl_stop(TAG);
	CHECK(answer() == -EINTR);
	CHECK(fake.live() == 0 && fake.memory() == 1);
	_exit(CHECK_DONE());
}

int
main(void)
{
	prepare_ranks("/unit/combine_jobs");
	run_ranks(1, "", rank_answers);
	run_ranks(3, "", rank_answers);
	run_ranks(2, "", rank_gives_way);
	return CHECK_DONE();
}
