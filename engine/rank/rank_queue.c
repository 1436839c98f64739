/*
 * Queues of messages from the I/O thread to Python threads. They use a futex, not a condition
 * variable, because a signal must end the wait.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rank_queue rank_main, rank_service, rank_rescue;

/* The request that the main thread is working on; 0 if none, or if it needs no reply. */
static _Atomic uint64_t main_tag;

void
rank_queue_init(struct rank_queue *q)
{
	pthread_mutex_init(&q->lock, NULL);
	STAILQ_INIT(&q->items);
	q->ended = false;
}

static void
changed(struct rank_queue *q, int threads)
{
	atomic_fetch_add(&q->changes, 1);
	syscall(SYS_futex, &q->changes, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

void
rank_queue_put(struct rank_queue *q, struct msg *m)
{
	struct item *it = xmalloc(sizeof(*it) + m->len);
	char *body = (char *)(it + 1);

	it->m = *m;
	it->m.body = body;
	memcpy(body, m->body, m->len);
	m->fd = -1;
	pthread_mutex_lock(&q->lock);
	STAILQ_INSERT_TAIL(&q->items, it, link);
	pthread_mutex_unlock(&q->lock);
	changed(q, 1);
}

void
rank_queue_end(struct rank_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->ended = true;
	pthread_mutex_unlock(&q->lock);
	changed(q, INT_MAX);
}

void
rank_queue_lock_all(void)
{
	pthread_mutex_lock(&rank_main.lock);
	pthread_mutex_lock(&rank_service.lock);
	pthread_mutex_lock(&rank_rescue.lock);
}

void
rank_queue_unlock_all(void)
{
	pthread_mutex_unlock(&rank_rescue.lock);
	pthread_mutex_unlock(&rank_service.lock);
	pthread_mutex_unlock(&rank_main.lock);
}

/* Returns 1 with *it, 0 at the end, or -EAGAIN if the queue is empty now. */
static int
take(struct rank_queue *q, struct item **it)
{
	int r;

	pthread_mutex_lock(&q->lock);
	*it = STAILQ_FIRST(&q->items);
	r = *it ? 1 : q->ended ? 0 : -EAGAIN;
	if (*it) {
		STAILQ_REMOVE_HEAD(&q->items, link);
		if (q == &rank_main)
			main_tag = (*it)->m.tag;
		if (q->taken)
			q->taken(&(*it)->m);
	}
	pthread_mutex_unlock(&q->lock);
	return r;
}

bool
rank_queue_main_busy(void)
{
	bool busy;

	pthread_mutex_lock(&rank_main.lock);
	busy = main_tag || !STAILQ_EMPTY(&rank_main.items);
	pthread_mutex_unlock(&rank_main.lock);
	return busy;
}

void
rank_queue_answered(uint64_t tag)
{
	atomic_compare_exchange_strong(&main_tag, &tag, 0);
}

uint64_t
rank_queue_unanswered(void)
{
	return main_tag;
}

bool
rank_queue_try(struct rank_queue *q, struct item **it)
{
	return take(q, it) > 0;
}

int
rank_queue_take(struct rank_queue *q, struct item **it)
{
	for (;;) {
		uint32_t seen = atomic_load(&q->changes);
		int r = take(q, it);

		if (r != -EAGAIN)
			return r;
		if (syscall(SYS_futex, &q->changes, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0) < 0 &&
		    errno == EINTR)
			return -EINTR;
	}
}
