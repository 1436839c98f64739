/*
 * The thread polls for the end of copies. Waiting in the driver would delay the start of jobs that
 * arrive in the meantime.
 */
#define _GNU_SOURCE
#include "rank/device_thread.h"
#include "rank/cuda.h"
#include "thread.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

enum {
	DEVICES_MAX = 64,
	EVENTS_KEPT = 32,      /* of a device, for further copies */
	MARKS_KEPT = 8,	       /* streams of a device with an event for their marks */
	SPINS = 200,	       /* polls before the thread sleeps between two of them */
	SLEEP_NS = 50000,      /* between two polls, */
	SLEEP_MAX_NS = 1000000 /* doubling up to this */
};

STAILQ_HEAD(jobs, job);

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	char *memory;
	size_t size;
	struct jobs jobs;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .jobs = STAILQ_HEAD_INITIALIZER(self.jobs)};

/* The thread's own. */
static struct {
	struct CUstream_st *streams[DEVICES_MAX];
	struct CUevent_st *events[DEVICES_MAX][EVENTS_KEPT]; /* not in use */
	int event_count[DEVICES_MAX];

	struct mark {
		struct CUstream_st *stream; /* the last one that the event was recorded on */
		struct CUevent_st *event;
	} marks[DEVICES_MAX][MARKS_KEPT];

	int next_mark[DEVICES_MAX];
	int device; /* the current one; -1: none */
	bool relaxed, prepared, registered;
	struct jobs under_way;
} gpu = {.device = -1, .under_way = STAILQ_HEAD_INITIALIZER(gpu.under_way)};

void
device_thread_lock(void)
{
	pthread_mutex_lock(&self.lock);
}

void
device_thread_unlock(void)
{
	pthread_mutex_unlock(&self.lock);
}

static void
finish(struct job *j)
{
	void (*ended)(struct job * j);

	if (j->event && gpu.event_count[j->device] < EVENTS_KEPT)
		gpu.events[j->device][gpu.event_count[j->device]++] = j->event;
	else if (j->event)
		cuda_event_free(j->event);
	j->event = NULL;
	device_thread_lock();
	j->done = true;
	ended = j->ended;
	pthread_cond_broadcast(&self.done);
	device_thread_unlock();
	if (ended)
		ended(j);
}

/* Once, and only after a device has been selected: this creates a context on the current device. */
static void
relax(void)
{
	struct err e;

	if (!gpu.relaxed && cuda_thread_begin(&e) < 0)
		note("a capture of a graph may fail while objects are read: %s", e.text);
	gpu.relaxed = true;
}

static int
use(int device, struct err *e)
{
	int r;

	if (device < 0 || device >= DEVICES_MAX)
		return fail(e, EINVAL, "there is no GPU %d", device);
	if (device == gpu.device)
		return 0;
	r = cuda_use(device, e);
	gpu.device = r < 0 ? -1 : device;
	if (r == 0)
		relax();
	return r;
}

/* Makes the device current and makes sure that it has our stream. */
static int
prepare(int device, struct err *e)
{
	int r = use(device, e);

	if (r == 0 && !gpu.prepared) {
		struct err why;

		/* copies are slower, but correct, without this */
		gpu.registered = cuda_register(self.memory, self.size, &why) == 0;
		if (!gpu.registered)
			note("the memory for copies of GPUs: %s", why.text);
		gpu.prepared = true;
	}
	if (r == 0 && !gpu.streams[device])
		r = cuda_stream_new(&gpu.streams[device], e);
	return r;
}

/* The event for the marks of this stream. If there are too many streams, the event of the oldest is
 * reused: work that already waits for the event still waits for what it was recorded after. */
static struct mark *
mark_of(int device, struct CUstream_st *stream)
{
	struct mark *marks = gpu.marks[device], *m;

	for (int i = 0; i < MARKS_KEPT; i++)
		if (marks[i].event && marks[i].stream == stream)
			return &marks[i];
	m = &marks[gpu.next_mark[device]];
	gpu.next_mark[device] = (gpu.next_mark[device] + 1) % MARKS_KEPT;
	m->stream = stream;
	return m;
}

/* Orders all further work on our stream after the work now queued on that stream. */
static int
mark(int device, struct CUstream_st *stream, struct err *e)
{
	struct mark *m;
	int r = prepare(device, e);

	if (r < 0)
		return r;
	m = mark_of(device, stream);
	if (!m->event && (r = cuda_event_new(&m->event, e)) < 0)
		return r;
	r = cuda_event_record(m->event, stream, e);
	return r < 0 ? r : cuda_stream_wait(gpu.streams[device], m->event, e);
}

/* Returns 0 also if the copy was put off and the job has no event yet: from or to memory that is
 * not registered, the driver copies synchronously, and would block here until the marked work
 * completes. */
static int
begin_copy(struct job *j)
{
	struct err *e = &j->err;
	int device = j->device, r = prepare(device, e);
	struct CUstream_st *stream;

	if (r < 0)
		return r;
	stream = gpu.streams[device];
	if (!gpu.registered && (r = cuda_stream_done(stream, e)) <= 0)
		return r;
	if (gpu.event_count[device])
		j->event = gpu.events[device][--gpu.event_count[device]];
	else if ((r = cuda_event_new(&j->event, e)) < 0)
		return r;
	r = j->kind == JOB_OUT ? cuda_copy_out(stream, j->host, j->address, j->n, e)
			       : cuda_copy_in(stream, j->address, j->host, j->n, e);
	return r < 0 ? r : cuda_event_record(j->event, stream, e);
}

static void
begin(struct job *j)
{
	size_t free_bytes = 0, total = 0;
	int r = 0, n;

	switch (j->kind) {
	case JOB_OUT:
	case JOB_IN:
		r = begin_copy(j);
		if (r == 0) {
			STAILQ_INSERT_TAIL(&gpu.under_way, j, link);
			return;
		}
		break;
	case JOB_OWNER:
		if (cuda_device_count(&n, &j->err) == 0 && use(j->device % n, &j->err) == 0)
			cuda_owner(j->address, &j->device, &j->err);
		break;
	case JOB_MARK:
		mark(j->device, j->stream, &j->err);
		break;
	case JOB_MEMORY:
		if (use(j->device, &j->err) == 0)
			cuda_memory(&free_bytes, &total, &j->err);
		j->free = free_bytes;
		j->total = total;
		break;
	}
	finish(j);
}

/* Is the job done, successfully or not? */
static bool
is_done(struct job *j)
{
	if (use(j->device, &j->err) < 0)
		return true;
	if (!j->event)
		return begin_copy(j) < 0;
	return cuda_event_done(j->event, &j->err) != 0;
}

/* Finishes the jobs that are done, in any order: each device has its own stream. */
static bool
look(void)
{
	struct job *j, *next;
	bool any = false;

	for (j = STAILQ_FIRST(&gpu.under_way); j; j = next) {
		next = STAILQ_NEXT(j, link);
		if (!is_done(j))
			continue;
		STAILQ_REMOVE(&gpu.under_way, j, job, link);
		finish(j);
		any = true;
	}
	return any;
}

/* The next job. Returns NULL if none arrives within about ns; 0: does not wait. Waits without a
 * limit if no copy is in flight. */
static struct job *
next_job(long ns)
{
	struct timespec until;
	struct job *j;

	device_thread_lock();
	if (STAILQ_EMPTY(&self.jobs) && STAILQ_EMPTY(&gpu.under_way)) {
		while (STAILQ_EMPTY(&self.jobs))
			pthread_cond_wait(&self.work, &self.lock);
	} else if (STAILQ_EMPTY(&self.jobs) && ns) {
		until = after_ns((uint64_t)ns);
		pthread_cond_timedwait(&self.work, &self.lock, &until);
	}
	j = STAILQ_FIRST(&self.jobs);
	if (j) {
		STAILQ_REMOVE_HEAD(&self.jobs, link);
		j->begun = true;
	}
	device_thread_unlock();
	return j;
}

static void *
device_thread(void *arg)
{
	long ns = 0;
	int looks = 0;

	prctl(PR_SET_NAME, "ddip-gpu");
	for (;;) {
		struct job *j = next_job(ns);

		if (j)
			begin(j);
		if (j || look()) {
			looks = 0;
			ns = 0;
		} else if (++looks > SPINS) {
			ns = ns ? MIN(2 * ns, (long)SLEEP_MAX_NS) : SLEEP_NS;
		} else {
			sched_yield();
		}
	}
	return NULL;
}

int
device_thread_start(char *memory, size_t size, struct err *e)
{
	pthread_t thread;
	int r;

	thread_cond(&self.work);
	thread_cond(&self.done);
	self.memory = memory;
	self.size = size;
	r = thread_start(&thread, device_thread, NULL);
	if (r != 0)
		return fail(e, r, "a thread for copies of GPUs: %s", strerror(r));
	pthread_detach(thread);
	return 0;
}

void
device_thread_submit(struct job *j)
{
	device_thread_lock();
	STAILQ_INSERT_TAIL(&self.jobs, j, link);
	pthread_cond_signal(&self.work);
	device_thread_unlock();
}

bool
device_thread_await(struct job *j, const struct timespec *until)
{
	bool done;
	int r = 0;

	device_thread_lock();
	while (!j->done && r != ETIMEDOUT)
		r = until ? pthread_cond_timedwait(&self.done, &self.lock, until)
			  : pthread_cond_wait(&self.done, &self.lock);
	done = j->done;
	device_thread_unlock();
	return done;
}

bool
device_thread_abandon(struct job *j, void (*ended)(struct job *j))
{
	bool done;

	device_thread_lock();
	/* A mark is made however late: reads after it must be ordered after it. */
	done = j->done || (!j->begun && j->kind != JOB_MARK);
	if (done && !j->done)
		STAILQ_REMOVE(&self.jobs, j, job, link);
	if (!done)
		j->ended = ended;
	device_thread_unlock();
	return !done;
}
