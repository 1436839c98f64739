/*
 * Stops torch's communicators of NCCL in a rank where Python does not come to it: a thread that
 * waits for a collective may hold the GIL.
 *
 * They are revoked, never aborted. ncclCommAbort frees a communicator, and torch has no way to be
 * told of that: NCCLComm keeps the pointer, asks it for errors, and frees it once more in its own
 * abort() or destroy(). ncclCommRevoke (NCCL 2.28) ends what is under way and leaves the
 * communicator to its owner, who may abort it then, but not meanwhile: rank_revoke_claim().
 */
#include "rank/rank.h"
#include "rank/cuda.h"
#include "thread.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* Python has so long to abort them; who is to free them waits so long for the end of this. */
enum { PYTHON_MS = 500, CLAIM_S = 2 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct loop *loop;
	bool due;	 /* the timer runs, and Python has not come */
	uintptr_t asked; /* which timer that is: it can be asked for again after a claim */
	bool running;	 /* a thread revokes them */
	bool started;	 /* `thread` is to be joined */
	pthread_t thread;
	struct revocable rows[REVOCABLE_MAX];
	int n;
	unsigned claims, claimed; /* ever; that hold now */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_revoke_init(struct loop *l)
{
	thread_cond(&self.changed);
	self.loop = l;
}

void
rank_revoke_leave(void)
{
	self.n = 0;
	self.running = self.started = self.due = false;
}

void
rank_revoke_lock(void)
{
	pthread_mutex_lock(&self.lock);
}

void
rank_revoke_unlock(void)
{
	pthread_mutex_unlock(&self.lock);
}

unsigned
rank_revoke_claims(void)
{
	unsigned claims;

	rank_revoke_lock();
	claims = self.claims;
	rank_revoke_unlock();
	return claims;
}

void
rank_revoke_set(const struct revocable *rows, int n, unsigned claims)
{
	rank_revoke_lock();
	if (!self.claimed && self.claims == claims) {
		self.n = MIN(n, (int)REVOCABLE_MAX);
		memcpy(self.rows, rows, (size_t)self.n * sizeof(*rows));
	}
	rank_revoke_unlock();
}

/* Without the lock: while `running` nobody frees them. */
static void
revoke(const struct revocable *rows, int n)
{
	struct ncclComm *comms[REVOCABLE_MAX];
	struct err e;

	for (int i = 0; i < n; i++)
		comms[i] = rows[i].comm;
	if (cuda_use(rows[0].device, &e) < 0 || nccl_revoke(comms, n, &e) < 0)
		note("communicators of NCCL: %s", e.text);
}

static void *
work(void *arg)
{
	struct revocable rows[REVOCABLE_MAX];
	int n;

	prctl(PR_SET_NAME, "ddip-revoke");
	rank_revoke_lock();
	n = self.n;
	memcpy(rows, self.rows, sizeof(rows));
	rank_revoke_unlock();
	revoke(rows, n);
	rank_revoke_lock();
	self.running = false;
	self.n = 0; /* once is enough */
	pthread_cond_broadcast(&self.changed);
	rank_revoke_unlock();
	return NULL;
}

/* With the lock held. A thread that does not run any more is at its last instructions. */
static void
join(void)
{
	if (self.started)
		pthread_join(self.thread, NULL);
	self.started = false;
}

/* With the lock held. */
static void
begin(void)
{
	int r;

	join();
	r = thread_start(&self.thread, work, NULL);
	if (r != 0) {
		note("no thread for NCCL: %s", strerror(r));
		return;
	}
	self.started = true;
	self.running = true;
}

static void
on_time(void *arg)
{
	rank_revoke_lock();
	if (self.due && self.asked == (uintptr_t)arg) {
		if (self.n > 0 && !self.running)
			begin();
		self.due = false;
	}
	rank_revoke_unlock();
}

void
rank_revoke_later(void)
{
	uintptr_t asked = 0;

	rank_revoke_lock();
	if (!self.due && self.n > 0) {
		self.due = true;
		asked = ++self.asked;
	}
	rank_revoke_unlock();
	if (asked)
		loop_timer(self.loop, PYTHON_MS, on_time, (void *)asked);
}

bool
rank_revoke_claim(void)
{
	struct timespec until;
	bool ended;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLAIM_S;
	rank_revoke_lock();
	self.due = false;
	while (self.running && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&self.changed, &self.lock, &until);
	ended = !self.running;
	if (ended) {
		join();
		self.n = 0;
		self.claims++;
		self.claimed++;
	}
	rank_revoke_unlock();
	return ended;
}

void
rank_revoke_release(void)
{
	rank_revoke_lock();
	self.claimed--;
	rank_revoke_unlock();
}
