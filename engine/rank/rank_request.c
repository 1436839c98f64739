/*
 * Requests that the service threads have not answered yet, and the main thread's requests other
 * than cells, so that a cancellation finds its target. A request that is still queued for a service
 * thread is removed from the queue. Any other is marked, and Python raises an exception in the
 * thread that works on it (py_request.c).
 *
 * The service queue's lock covers the queue and this list, so that a service request is always in
 * exactly one of the two.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdlib.h>

struct request {
	uint64_t tag;
	unsigned long thread; /* Python's identifier; 0: no thread works on it now */
	bool main;	      /* the main thread's: stays until rank_request_forget() */
	bool must;	      /* carried out even if cancelled; only what it calls is ended */
	bool cancelled;
	LIST_ENTRY(request) link;
};

static LIST_HEAD(, request) taken = LIST_HEAD_INITIALIZER(taken);

static struct request *
find(uint64_t tag)
{
	struct request *r;

	LIST_FOREACH (r, &taken, link)
		if (r->tag == tag)
			return r;
	return NULL;
}

static void
add(struct request what)
{
	struct request *r = xmalloc(sizeof(*r));

	*r = what;
	LIST_INSERT_HEAD(&taken, r, link);
}

static void
on_taken(const struct msg *m)
{
	if (m->tag) /* a notice has none */
		add((struct request){.tag = m->tag});
}

void
rank_request_main(uint64_t tag, bool must)
{
	pthread_mutex_lock(&rank_service.lock);
	add((struct request){.tag = tag, .main = true, .must = must});
	pthread_mutex_unlock(&rank_service.lock);
}

bool
rank_request_main_cancelled(void)
{
	const struct request *r;
	bool cancelled = false;

	pthread_mutex_lock(&rank_service.lock);
	LIST_FOREACH (r, &taken, link)
		cancelled |= r->main && r->thread && r->cancelled;
	pthread_mutex_unlock(&rank_service.lock);
	return cancelled;
}

void
rank_request_init(void)
{
	rank_service.taken = on_taken;
}

struct item *
rank_request_cancel(uint64_t tag, bool *runs)
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
	*runs = r && (r->thread || r->main);
	pthread_mutex_unlock(&rank_service.lock);
	return it;
}

bool
rank_request_begin(uint64_t tag, unsigned long thread)
{
	struct request *r;
	bool wanted;

	pthread_mutex_lock(&rank_service.lock);
	r = find(tag);
	wanted = !r || !r->cancelled || r->must;
	if (r && wanted)
		r->thread = thread;
	pthread_mutex_unlock(&rank_service.lock);
	return wanted;
}

/* The thread no longer works on it. */
static void
leave(struct request *r)
{
	r->thread = 0;
	if (r->main)
		return;
	LIST_REMOVE(r, link);
	free(r);
}

bool
rank_request_end(uint64_t tag)
{
	struct request *r;
	bool cancelled;

	pthread_mutex_lock(&rank_service.lock);
	r = find(tag);
	cancelled = r && r->cancelled;
	if (r && !cancelled)
		leave(r);
	pthread_mutex_unlock(&rank_service.lock);
	return cancelled;
}

bool
rank_request_leave(uint64_t tag)
{
	struct request *r;
	bool is_main;

	pthread_mutex_lock(&rank_service.lock);
	r = find(tag);
	is_main = r && r->main;
	if (r)
		leave(r);
	pthread_mutex_unlock(&rank_service.lock);
	return is_main;
}

void
rank_request_forget(uint64_t tag)
{
	struct request *r;

	pthread_mutex_lock(&rank_service.lock);
	r = find(tag);
	if (r)
		LIST_REMOVE(r, link);
	pthread_mutex_unlock(&rank_service.lock);
	free(r);
}

size_t
rank_request_cancelled(struct rank_worker *workers, size_t max)
{
	struct request *r;
	size_t n = 0;

	pthread_mutex_lock(&rank_service.lock);
	LIST_FOREACH (r, &taken, link)
		if (r->cancelled && (r->thread || r->main) && n < max)
			workers[n++] = (struct rank_worker){r->thread, r->main};
	pthread_mutex_unlock(&rank_service.lock);
	return n;
}
