/* Opens and closes the link, and waits without blocking in NCCL or CUDA. */
#define _GNU_SOURCE
#include "rank/nccl_link.h"
#include "rank/cuda.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* A wait polls without a pause for SPIN_NS, then with one: most operations are short. */
enum { SPIN_NS = 2000000, PAUSE_US = 100 };

enum { PAGE = 4096 }; /* bytes: CUDA registers whole pages */

static int
staging_open(struct nccl_link *l, struct err *e)
{
	void *p;

	if (l->staging)
		return 0;
	p = aligned_alloc(PAGE, NCCL_STAGING);
	if (!p)
		return fail_errno(e, "memory for copies of GPUs");
	if (cuda_register(p, NCCL_STAGING, e) < 0) {
		free(p);
		return -e->no;
	}
	l->staging = p;
	return 0;
}

static int
open_parts(struct nccl_link *l, const char id[NCCL_ID_SIZE], int device, struct err *e)
{
	if (cuda_use(device, e) < 0 || cuda_thread_begin(e) < 0 || staging_open(l, e) < 0 ||
	    cuda_stream_new(&l->stream, e) < 0 || nccl_new(&l->comm, id, l->rank, l->ranks, e) < 0)
		return -e->no;
	return nccl_link_settle(l, e);
}

int
nccl_link_open(struct nccl_link *l, const char id[NCCL_ID_SIZE], int rank, int ranks, int device,
    struct err *e)
{
	int r;

	l->rank = rank;
	l->ranks = ranks;
	l->stream = NULL;
	r = open_parts(l, id, device, e);
	if (r < 0)
		nccl_link_close(l);
	return r;
}

void
nccl_link_close(struct nccl_link *l)
{
	nccl_abort(l->comm);
	if (l->stream)
		cuda_stream_free(l->stream);
	l->comm = NULL;
	l->stream = NULL;
}

static int
leave(struct nccl_link *l, struct err *e)
{
	int r = nccl_finalize(l->comm, e);

	if (r == 0)
		r = nccl_link_settle(l, e);
	if (r == 0) {
		r = nccl_free(l->comm, e);
		l->comm = NULL;
	}
	return r;
}

int
nccl_link_leave(struct nccl_link *l, struct err *e)
{
	int r = l->comm ? leave(l, e) : fail(e, EINVAL, "NCCL: no link");

	nccl_link_close(l);
	return r;
}

void
nccl_link_cancel(struct nccl_link *l)
{
	atomic_store(&l->cancelled, true);
}

/* Returns 1, 0 if not yet, or -errno. */
typedef int poll_fn(struct nccl_link *l, struct err *e);

/* Calls poll(). Fails if the wait is cancelled, or if ns, its duration so far, is at the limit. */
static int
look(struct nccl_link *l, poll_fn *poll, uint64_t ns, struct err *e)
{
	int r;

	if (atomic_load(&l->cancelled))
		return fail(e, EINTR, "NCCL: cancelled");
	r = poll(l, e);
	if (r == 0 && l->limit_ms && ns / NS_PER_MS >= (uint64_t)l->limit_ms)
		return fail(
		    e, ETIMEDOUT, "NCCL: the other ranks did not come in %d ms", l->limit_ms);
	return r;
}

static int
wait_for(struct nccl_link *l, poll_fn *poll, struct err *e)
{
	uint64_t begin = now_ns(), ns = 0;
	int r;

	while ((r = look(l, poll, ns, e)) == 0) {
		if (ns < SPIN_NS)
			sched_yield();
		else
			usleep(PAUSE_US);
		ns = now_ns() - begin;
	}
	return r < 0 ? r : 0;
}

static int
has_begun(struct nccl_link *l, struct err *e)
{
	return nccl_state(l->comm, e);
}

static int
is_done(struct nccl_link *l, struct err *e)
{
	int r = nccl_state(l->comm, e);

	return r == 1 ? cuda_stream_done(l->stream, e) : r;
}

int
nccl_link_settle(struct nccl_link *l, struct err *e)
{
	return wait_for(l, has_begun, e);
}

int
nccl_link_finish(struct nccl_link *l, struct err *e)
{
	return wait_for(l, is_done, e);
}
