/*
 * Runs one job at a time. Either the caller waits for it, in slices so that signals are handled, or
 * it has no waiter and is stopped when the main thread gets work. The worker thread itself aborts a
 * cancelled job, because NCCL allows a communicator to be used by one thread only.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "rank/nccl_measure.h"
#include "thread.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* COMBINE_LIMIT_MS: longer than creating a communicator, or combining a chunk, takes. */
enum { CANCEL_MS = 1000, COMBINE_LIMIT_MS = 20000 };

enum state { IDLE, GIVEN, RUNNING, DONE };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool started;
	enum state state;
	bool abandoned; /* the job's waiter has given up */
	struct nccl_job job;
	struct measure measure;
	struct err err;
	struct nccl_link link; /* the thread's */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_nccl_lock(void)
{
	pthread_mutex_lock(&self.lock);
}

void
rank_nccl_unlock(void)
{
	pthread_mutex_unlock(&self.lock);
}

/* Waits until the work that earlier cells queued is done: copies one byte, which is ordered after
 * it. */
static int
await_device(const struct nccl_job *j, struct err *e)
{
	ssize_t n = 0;
	char byte;

	while (n == 0 && !atomic_load(&self.link.cancelled))
		n = rank_device_copy(
		    j->device, j->combine.address, &byte, sizeof(byte), j->handle, false, e);
	return n == 0 ? fail(e, EINTR, "NCCL: cancelled") : MIN((int)n, 0);
}

static int
combine(const struct nccl_job *j, struct err *e)
{
	int r = await_device(j, e);

	nccl_link_close(&self.link);
	self.link.limit_ms = COMBINE_LIMIT_MS;
	if (r == 0)
		r = nccl_link_open(&self.link, j->id, j->rank, j->ranks, j->device, e);
	if (r == 0)
		r = nccl_combine(&self.link, &j->combine, e);
	if (r == 0)
		r = nccl_link_leave(&self.link, e);
	self.link.limit_ms = 0;
	return r;
}

/* Called without the lock: no other thread touches job, measure and err while this runs. */
static void
run(void)
{
	struct nccl_job *j = &self.job;
	int r = 0;

	self.err.no = 0;
	switch (j->kind) {
	case NCCL_ID:
		r = nccl_id(j->id, &self.err);
		break;
	case NCCL_COMBINE:
		r = combine(j, &self.err);
		break;
	case NCCL_JOIN:
		nccl_link_close(&self.link);
		r = nccl_link_open(&self.link, j->id, j->rank, j->ranks, j->device, &self.err);
		break;
	case NCCL_MEASURE:
		r = nccl_measure(&self.link, &self.measure, &self.err);
		break;
	case NCCL_LEAVE:
		r = nccl_link_leave(&self.link, &self.err);
		break;
	case NCCL_ABORT:
		nccl_link_close(&self.link);
		break;
	}
	if (r < 0)
		nccl_link_close(&self.link);
}

/* Reports the end of a job without a waiter once another job can begin, because the next one
 * follows soon. Call with the lock held; releases it during the callback. */
static void
tell(void)
{
	struct nccl_job job = self.job;
	struct err e = self.err;

	if (!job.ended)
		return;
	rank_nccl_unlock();
	job.ended(&job, &e);
	rank_nccl_lock();
}

static void *
work(void *arg)
{
	prctl(PR_SET_NAME, "ddip-nccl");
	rank_nccl_lock();
	for (;;) {
		while (self.state != GIVEN)
			pthread_cond_wait(&self.changed, &self.lock);
		self.state = RUNNING;
		rank_nccl_unlock();
		run();
		rank_nccl_lock();
		self.state = self.abandoned || self.job.ended ? IDLE : DONE;
		self.abandoned = false;
		pthread_cond_broadcast(&self.changed);
		tell();
	}
	return NULL;
}

/* Starts the thread once. Call with the lock held. */
static int
start(struct err *e)
{
	pthread_t thread;
	int r;

	if (self.started)
		return 0;
	thread_cond(&self.changed);
	r = thread_start(&thread, work, NULL);
	if (r != 0)
		return fail(e, r, "no thread for NCCL: %s", strerror(r));
	pthread_detach(thread);
	self.started = true;
	return 0;
}

int
rank_nccl_begin(const struct nccl_job *job, struct err *e)
{
	int r;

	if (!nccl_is_open() && job->kind != NCCL_LEAVE && job->kind != NCCL_ABORT)
		return fail(e, EOPNOTSUPP, "NCCL is not loaded in this rank");
	rank_nccl_lock();
	r = start(e);
	if (r == 0 && self.state != IDLE)
		r = fail(e, EBUSY,
		    self.job.ended ? "NCCL is at work for another reader"
				   : "NCCL does not come back from what was interrupted");
	if (r == 0) {
		self.job = *job;
		if (job->measure)
			self.measure = *job->measure;
		atomic_store(&self.link.cancelled, false);
		self.state = GIVEN;
		pthread_cond_broadcast(&self.changed);
	}
	rank_nccl_unlock();
	return r;
}

/* Waits up to ms milliseconds until the job is in this state. Call with the lock held. */
static void
wait_state(enum state state, int ms)
{
	struct timespec until = after_ns((uint64_t)ms * NS_PER_MS);
	int r = 0;

	while (self.state != state && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&self.changed, &self.lock, &until);
}

int
rank_nccl_wait(int ms, struct err *e)
{
	int r = 0;

	rank_nccl_lock();
	wait_state(DONE, ms);
	if (self.state == DONE) {
		self.state = IDLE;
		if (self.job.measure)
			*self.job.measure = self.measure;
		if (self.err.no)
			*e = self.err;
		r = self.err.no ? -self.err.no : 1;
	}
	rank_nccl_unlock();
	return r;
}

void
rank_nccl_cancel(void)
{
	rank_nccl_lock();
	nccl_link_cancel(&self.link);
	wait_state(DONE, CANCEL_MS);
	self.abandoned = self.state != DONE;
	if (self.state == DONE)
		self.state = IDLE;
	rank_nccl_unlock();
}

void
rank_nccl_abort(void)
{
	rank_nccl_lock();
	if (self.state == GIVEN || self.state == RUNNING)
		nccl_link_cancel(&self.link);
	rank_nccl_unlock();
}

/* Is there a job without a waiter? Call with the lock held. */
static bool
is_alone(void)
{
	return self.state != IDLE && self.job.ended;
}

void
rank_nccl_stop(uint64_t tag)
{
	rank_nccl_lock();
	if (is_alone() && (!tag || tag == self.job.tag))
		nccl_link_cancel(&self.link);
	rank_nccl_unlock();
}

void
rank_nccl_settle(void)
{
	rank_nccl_lock();
	if (is_alone())
		wait_state(IDLE, CANCEL_MS);
	rank_nccl_unlock();
}
