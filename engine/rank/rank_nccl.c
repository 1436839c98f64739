/*
 * One job at a time, which the thread that gave it waits for in slices, so that signals are
 * handled. What is cancelled is aborted by the thread itself: NCCL has one communicator in one
 * thread only.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "rank/nccl_measure.h"
#include "thread.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { CANCEL_MS = 1000, MS_PER_S = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

enum state { IDLE, GIVEN, RUNNING, DONE };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool started;
	enum state state;
	bool abandoned; /* nobody waits for the job */
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

/* Without the lock: nobody else touches job, measure and err while it runs. */
static void
run(void)
{
	struct nccl_job *j = &self.job;
	int r = 0;

	self.err.no = 0;
	switch (j->kind) {
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
		self.state = self.abandoned ? IDLE : DONE;
		self.abandoned = false;
		pthread_cond_broadcast(&self.changed);
	}
	return NULL;
}

/* Starts the thread, once; the lock is held. */
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

	rank_nccl_lock();
	r = start(e);
	if (r == 0 && self.state != IDLE)
		r = fail(e, EBUSY, "NCCL does not come back from what was interrupted");
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

/* With the lock held: waits for the end of the job. */
static void
wait_done(int ms)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / MS_PER_S;
	until.tv_nsec += (long)(ms % MS_PER_S) * NS_PER_MS;
	until.tv_sec += until.tv_nsec / NS_PER_S;
	until.tv_nsec %= NS_PER_S;
	while (self.state != DONE && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&self.changed, &self.lock, &until);
}

int
rank_nccl_wait(int ms, struct err *e)
{
	int r = 0;

	rank_nccl_lock();
	wait_done(ms);
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
	wait_done(CANCEL_MS);
	self.abandoned = self.state != DONE;
	if (self.state == DONE)
		self.state = IDLE;
	rank_nccl_unlock();
}
