/*
 * Requests that the service threads have not answered yet, and the push that the main thread has,
 * so that a cancellation finds its target. A request that still waits for a service thread is taken
 * out of the queue; another one is marked, and Python raises in the thread that works on it
 * (py_request.c).
 *
 * The service queue's lock covers both, so a request is always in exactly one of the two places.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdlib.h>

struct request {
	uint32_t tag;
	unsigned long thread; /* Python's name for it; 0: nothing runs for it now */
	bool push;	      /* the main thread's */
	bool cancelled;
	LIST_ENTRY(request) link;
};

static LIST_HEAD(, request) taken = LIST_HEAD_INITIALIZER(taken);

static struct request *
find(uint32_t tag)
{
	struct request *r;

	LIST_FOREACH (r, &taken, link)
		if (r->tag == tag)
			return r;
	return NULL;
}

static void
add(uint32_t tag, bool push)
{
	struct request *r = xmalloc(sizeof(*r));

	*r = (struct request){.tag = tag, .push = push};
	LIST_INSERT_HEAD(&taken, r, link);
}

static void
on_taken(const struct msg *m)
{
	if (m->tag) /* no notice */
		add(m->tag, false);
}

void
rank_request_push(uint32_t tag)
{
	pthread_mutex_lock(&rank_service.lock);
	add(tag, true);
	pthread_mutex_unlock(&rank_service.lock);
}

bool
rank_request_push_cancelled(void)
{
	const struct request *r;
	bool cancelled = false;

	pthread_mutex_lock(&rank_service.lock);
	LIST_FOREACH (r, &taken, link)
		cancelled |= r->push && r->thread && r->cancelled;
	pthread_mutex_unlock(&rank_service.lock);
	return cancelled;
}

void
rank_request_init(void)
{
	rank_service.taken = on_taken;
}

struct item *
rank_request_cancel(uint32_t tag, bool *runs)
{
	struct request *r;
	struct item *it;

	pthread_mutex_lock(&rank_service.lock);
	STAILQ_FOREACH (it, &rank_service.items, link)
		if (it->m.tag == tag)
			break;
	if (it)
		STAILQ_REMOVE(&rank_service.items, it, item, link);
	r = find(tag);
	if (r)
		r->cancelled = true;
	*runs = r && r->thread;
	pthread_mutex_unlock(&rank_service.lock);
	return it;
}

bool
rank_request_begin(uint32_t tag, unsigned long thread)
{
	struct request *r;
	bool wanted;

	pthread_mutex_lock(&rank_service.lock);
	r = find(tag);
	wanted = !r || !r->cancelled;
	if (r && wanted)
		r->thread = thread;
	pthread_mutex_unlock(&rank_service.lock);
	return wanted;
}

bool
rank_request_end(uint32_t tag)
{
	struct request *r;
	bool cancelled;

	pthread_mutex_lock(&rank_service.lock);
	r = find(tag);
	if (r)
		LIST_REMOVE(r, link);
	cancelled = r && r->cancelled;
	pthread_mutex_unlock(&rank_service.lock);
	free(r);
	return cancelled;
}

size_t
rank_request_cancelled(unsigned long *threads, size_t max)
{
	struct request *r;
	size_t n = 0;

	pthread_mutex_lock(&rank_service.lock);
	LIST_FOREACH (r, &taken, link)
		if (r->cancelled && r->thread && n < max)
			threads[n++] = r->thread;
	pthread_mutex_unlock(&rank_service.lock);
	return n;
}
