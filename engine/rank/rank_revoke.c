/*
 * Stops torch's NCCL communicators in a rank where Python cannot do it, because a thread that waits
 * for a collective may hold the GIL.
 *
 * They are revoked, never aborted. ncclCommAbort frees a communicator, and torch cannot be notified
 * of that: NCCLComm keeps the pointer, queries it for errors, and frees it again in its own abort()
 * or destroy(). ncclCommRevoke (NCCL 2.28.7) ends the operations in flight and leaves the
 * communicator to its owner, who may abort it afterwards, but not in the meantime: see
 * rank_revoke_claim().
 */
#include "rank/rank.h"
#include "rank/cuda.h"
#include "thread.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* PYTHON_MS: how long Python has to abort them first. CLAIM_S: how long rank_revoke_claim() waits
 * for a revocation in progress. */
enum { PYTHON_MS = 500, CLAIM_S = 2 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct loop *loop;
	bool due;	 /* the timer runs, and Python has not claimed them */
	uintptr_t asked; /* identifies the timer: after a claim, a new one may be started */
	bool running;	 /* a thread is revoking them */
	bool started;	 /* `thread` must be joined */
	pthread_t thread;
	struct revocable rows[REVOCABLE_MAX];
	int n;
	unsigned claims, claimed; /* in total; held now */
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

/* Called without the lock: they are not freed while `running` is set. */
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

/* Call with the lock held: a thread that has cleared `running` is about to exit. */
static void
join(void)
{
	if (self.started)
		pthread_join(self.thread, NULL);
	self.started = false;
}

/* Call with the lock held. */
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
