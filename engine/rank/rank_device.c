/* Whole copies, in pieces that fit into slots, and copies that the daemon requests. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "rank/cuda.h"
#include "rank/device_thread.h"
#include "thread.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	OWN_SLOTS = 8,	   /* after the daemon's: for rank_device_copy() */
	PIPELINE = 4,	   /* slots that one copying thread uses, at most */
	COPIERS = 4,	   /* threads for one push, at most: one can't saturate a fast link */
	COPIER_PIECES = 2, /* pieces that justify another thread */
	WAIT_MS = 50,	   /* a thread then checks whether its copy is still wanted */
	MEMORY_MS = 400,   /* for the memory of a device; the daemon waits half a second */
	MARK_MS = 1000	   /* for a mark, at most: the cell has ended */
};

/* Pieces of a copy that are under way, in order. */
struct pipeline {
	struct job *jobs[PIPELINE];
	int first, count;
	size_t begun; /* bytes */
};

/* A read that took long: its pieces go on, and the caller's next call collects them. */
struct unfinished {
	uint32_t pin;
	uint64_t address;
	struct pipeline pipeline;
	LIST_ENTRY(unfinished) link;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t slot_free;
	bool open;
	struct err why; /* why it could not be opened */
	int memfd;
	char *memory; /* the daemon's slots, then ours */
	bool slot_taken[OWN_SLOTS];
	LIST_HEAD(, unfinished) unfinished;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .memfd = -1};

void
rank_device_lock(void)
{
	pthread_mutex_lock(&self.lock);
	device_thread_lock();
}

void
rank_device_unlock(void)
{
	device_thread_unlock();
	pthread_mutex_unlock(&self.lock);
}

static int
start(struct err *e)
{
	size_t size = (DEVICE_SLOTS + OWN_SLOTS) * (size_t)DEVICE_SLOT;

	/* Sealed: the daemon has the descriptor, too, and could kill both with SIGBUS. */
	self.memfd = memfd_create("ddip-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (self.memfd < 0 || ftruncate(self.memfd, (off_t)size) < 0 ||
	    fcntl(self.memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return fail_errno(e, "memory for copies of GPUs");
	self.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self.memfd, 0);
	if (self.memory == MAP_FAILED)
		return fail_errno(e, "memory for copies of GPUs");
	thread_cond(&self.slot_free);
	return device_thread_start(self.memory, size, e);
}

int
rank_device_open(const char *folders, struct err *e)
{
	int r = cuda_open(folders, e);

	if (r < 0)
		return r;
	pthread_mutex_lock(&self.lock);
	if (!self.open && !self.why.no)
		self.open = start(&self.why) == 0;
	r = self.open ? 0 : -self.why.no;
	if (r < 0)
		*e = self.why;
	pthread_mutex_unlock(&self.lock);
	return r;
}

bool
rank_device_is_open(void)
{
	bool is;

	pthread_mutex_lock(&self.lock);
	is = self.open;
	pthread_mutex_unlock(&self.lock);
	return is;
}

int
rank_device_memfd(void)
{
	return self.memfd;
}

static void
free_job(struct job *j)
{
	free(j);
}

/* Runs a job that the thread completes at once, unless the driver holds it up: -EAGAIN. Stores the
 * finished job in *q. */
static int
ask(struct job *q, int ms, struct err *e)
{
	struct timespec until = after_ns((uint64_t)ms * NS_PER_MS);
	struct job *j = xmalloc(sizeof(*j));

	*j = *q;
	device_thread_submit(j);
	if (!device_thread_await(j, &until) && device_thread_abandon(j, free_job))
		return fail(e, EAGAIN, "the driver of the GPU does not answer");
	*q = *j;
	free(j);
	if (!q->done)
		return fail(e, EAGAIN, "the driver of the GPU does not answer");
	if (q->err.no)
		*e = q->err;
	return -q->err.no;
}

int
rank_device_mark(int device, struct CUstream_st *stream, struct err *e)
{
	struct job j = {.kind = JOB_MARK, .device = device, .stream = stream};
	int r = device < 0 ? cuda_current(&j.device, e) : 0;

	return r < 0 ? r : ask(&j, MARK_MS, e);
}

int
rank_device_owner(uint64_t address, int near, int *device, struct err *e)
{
	struct job j = {.kind = JOB_OWNER, .device = near, .address = address};
	int r = ask(&j, WAIT_MS, e);

	*device = j.device;
	return r;
}

int
rank_device_memory(int device, uint64_t *free_bytes, uint64_t *total, struct err *e)
{
	struct job j = {.kind = JOB_MEMORY, .device = device};
	int r = ask(&j, MEMORY_MS, e);

	*free_bytes = j.free;
	*total = j.total;
	return r;
}

/* Takes one of our slots. Returns -1 if none becomes free by the deadline (NULL: does not wait). */
static int
take_slot(const struct timespec *until)
{
	int found = -1, r = until ? 0 : ETIMEDOUT;

	pthread_mutex_lock(&self.lock);
	for (;;) {
		for (int i = 0; i < OWN_SLOTS && found < 0; i++)
			if (!self.slot_taken[i])
				found = i;
		if (found >= 0 || r == ETIMEDOUT)
			break;
		r = pthread_cond_timedwait(&self.slot_free, &self.lock, until);
	}
	if (found >= 0)
		self.slot_taken[found] = true;
	pthread_mutex_unlock(&self.lock);
	return found;
}

static void
free_slot(int slot)
{
	pthread_mutex_lock(&self.lock);
	self.slot_taken[slot] = false;
	pthread_cond_broadcast(&self.slot_free);
	pthread_mutex_unlock(&self.lock);
}

/* The part of a copy that one thread makes. */
struct part {
	int device;
	uint64_t address;
	char *host;
	size_t n, copied;
	uint32_t pin;
	bool into;
	atomic_bool *failed; /* some part of the copy has failed: the others stop, too */
	struct err err;
	pthread_t thread;
	bool started;
};

/* Begins to copy up to a slot's bytes from `at` on. Returns NULL if no slot became free in time. */
static struct job *
begin_piece(const struct part *p, size_t at, const struct timespec *until)
{
	int slot = take_slot(until), owner;
	struct err e = {0};
	uint64_t place;
	struct job *j;

	if (slot < 0)
		return NULL;
	j = xmalloc(sizeof(*j));
	*j = (struct job){.kind = p->into ? JOB_IN : JOB_OUT,
	    .device = p->device,
	    .address = p->address + at,
	    .host = self.memory + (size_t)(DEVICE_SLOTS + slot) * DEVICE_SLOT,
	    .n = MIN(p->n - at, (size_t)DEVICE_SLOT),
	    .slot = slot};
	if (p->pin && rank_pin_hold(p->pin, 0, 0, &place, &owner, &e) == 0)
		j->handle = p->pin;
	if (p->into)
		memcpy(j->host, p->host + at, j->n);
	device_thread_submit(j);
	return j;
}

static void
free_piece(struct job *j)
{
	if (j->handle)
		rank_pin_release(j->handle);
	free_slot(j->slot);
	free(j);
}

/* Collects the result of a finished piece and frees it. Returns the number of bytes copied. */
static size_t
end_piece(struct job *j, char *host, struct err *e)
{
	size_t n = j->err.no ? 0 : j->n;

	if (j->err.no && !e->no)
		*e = j->err;
	if (j->kind == JOB_OUT)
		memcpy(host, j->host, n);
	free_piece(j);
	return n;
}

/* Extends the deadline of a push. Returns false with *e set if the push is cancelled. */
static bool
goes_on(struct timespec *until, struct err *e)
{
	*until = after_ns(WAIT_MS * NS_PER_MS);
	if (rank_request_main_cancelled())
		fail(e, EINTR, "interrupted while it was copied there");
	return !e->no;
}

static void
give_up(struct pipeline *q)
{
	for (; q->count > 0; q->count--, q->first = (q->first + 1) % PIPELINE)
		if (!device_thread_abandon(q->jobs[q->first], free_piece))
			free_piece(q->jobs[q->first]);
	q->begun = 0;
}

static struct unfinished *
take_unfinished(uint32_t pin, const uint64_t *address)
{
	struct unfinished *u;

	pthread_mutex_lock(&self.lock);
	LIST_FOREACH (u, &self.unfinished, link)
		if (u->pin == pin && (!address || u->address == *address))
			break;
	if (u)
		LIST_REMOVE(u, link);
	pthread_mutex_unlock(&self.lock);
	return u;
}

void
rank_device_forget(uint32_t pin)
{
	struct unfinished *u;

	while ((u = take_unfinished(pin, NULL))) {
		give_up(&u->pipeline);
		free(u);
	}
}

/* Takes up what an earlier call of this read has begun. */
static void
resume(const struct part *p, struct pipeline *q)
{
	struct unfinished *u = p->pin ? take_unfinished(p->pin, &p->address) : NULL;

	if (u)
		*q = u->pipeline;
	free(u);
	if (q->begun > p->n)
		give_up(q);
}

/* Leaves what a read has begun to the next call. Were it begun anew each time, a read whose pieces
 * take longer than one call waits would never end. */
static void
leave(const struct part *p, struct pipeline *q)
{
	struct unfinished *u = xmalloc(sizeof(*u));

	*u = (struct unfinished){.pin = p->pin, .address = p->address + p->copied, .pipeline = *q};
	u->pipeline.begun -= p->copied;
	pthread_mutex_lock(&self.lock);
	LIST_INSERT_HEAD(&self.unfinished, u, link);
	pthread_mutex_unlock(&self.lock);
}

/* Copies in pieces, which are pipelined: a piece begins before earlier ones are done. */
static void
copy_part(struct part *p)
{
	struct timespec until = after_ns(WAIT_MS * NS_PER_MS);
	struct pipeline q = {0};
	struct job *j;

	resume(p, &q);
	while (!p->err.no && !atomic_load(p->failed)) {
		while (q.count < PIPELINE && q.begun < p->n &&
		       (j = begin_piece(p, q.begun, q.count ? NULL : &until))) {
			q.jobs[(q.first + q.count++) % PIPELINE] = j;
			q.begun += j->n;
		}
		if (p->copied == p->n)
			break;
		if (q.count == 0 || !device_thread_await(q.jobs[q.first], &until)) {
			if (p->into && goes_on(&until, &p->err))
				continue;
			break;
		}
		p->copied += end_piece(q.jobs[q.first], p->host + p->copied, &p->err);
		q.first = (q.first + 1) % PIPELINE;
		q.count--;
	}
	if (p->err.no)
		atomic_store(p->failed, true);
	if (q.count > 0 && p->pin && !p->into && !p->err.no)
		leave(p, &q);
	else
		give_up(&q);
}

static void *
copy_thread(void *arg)
{
	copy_part(arg);
	return NULL;
}

/* The number of threads for a copy of n bytes, including the caller. A read may end early, so one
 * thread copies its bytes in order. */
static int
copiers(size_t n, bool into)
{
	size_t worth = n / ((size_t)COPIER_PIECES * DEVICE_SLOT);
	cpu_set_t cpus;
	int most = COPIERS;

	if (!into)
		return 1;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		most = MIN(most, CPU_COUNT(&cpus));
	return (int)MAX(MIN((size_t)most, worth), (size_t)1);
}

ssize_t
rank_device_copy(
    int device, uint64_t address, char *host, size_t n, uint32_t pin, bool into, struct err *e)
{
	struct part parts[COPIERS];
	int count = copiers(n, into);
	size_t each = n / (size_t)count, copied = 0;
	atomic_bool failed = false;

	e->no = 0;
	for (int i = 0; i < count; i++) {
		size_t at = (size_t)i * each;

		parts[i] = (struct part){.device = device,
		    .address = address + at,
		    .host = host + at,
		    .n = i == count - 1 ? n - at : each,
		    .pin = pin,
		    .into = into,
		    .failed = &failed};
		parts[i].started =
		    i < count - 1 && thread_start(&parts[i].thread, copy_thread, &parts[i]) == 0;
	}
	for (int i = 0; i < count; i++)
		if (!parts[i].started)
			copy_part(&parts[i]);
	for (int i = 0; i < count; i++) {
		if (parts[i].started)
			pthread_join(parts[i].thread, NULL);
		copied += parts[i].copied;
		if (parts[i].err.no && !e->no)
			*e = parts[i].err;
	}
	return e->no ? -e->no : (ssize_t)copied;
}

/* Replies to a Tcopy. */
static void
answer(struct job *j)
{
	struct buf b = {0};
	struct msg m;

	rank_pin_release(j->handle);
	if (j->err.no)
		wire_pack_error(&b, 0, j->tag, &j->err);
	else
		wire_pack(&b, Rcopy, 0, 0, j->tag);
	if (wire_frame(b.p, b.n, &m, NULL) > 0) {
		rank_link_send(&m);
		if (j->err.no && cuda_is_lost())
			rank_queue_put(
			    &rank_service, &m); /* ends this process, unless a cell runs */
	}
	buf_free(&b);
	free(j);
}

int
rank_device_answer(const struct msg *m, struct err *e)
{
	uint64_t offset, to, address;
	uint32_t handle, count;
	int device, r = wire_unpack(m, Tcopy, e, &handle, &offset, &count, &to);
	struct job *j;

	if (r < 0)
		return r;
	if (count > DEVICE_SLOT || to > (uint64_t)DEVICE_SLOTS * DEVICE_SLOT - count)
		return fail(e, EINVAL, "copy: %u bytes to %llu (want 0..%d in one of %d slots)",
		    count, (unsigned long long)to, DEVICE_SLOT, DEVICE_SLOTS);
	r = rank_pin_hold(handle, offset, count, &address, &device, e);
	if (r < 0)
		return r;
	j = xmalloc(sizeof(*j));
	*j = (struct job){.kind = JOB_OUT,
	    .device = device,
	    .address = address,
	    .host = self.memory + to,
	    .n = count,
	    .ended = answer,
	    .tag = m->tag,
	    .handle = handle};
	device_thread_submit(j);
	return 0;
}
