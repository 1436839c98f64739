/* Streams and events of the fake CUDA runtime. */
#include "cudart_inside.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct task *
next_task(struct CUstream_st *s)
{
	struct task *t;

	for (;;) {
		t = STAILQ_FIRST(&s->tasks);
		if (t && !(t->waits && t->event->reached < t->number) && !(t->holds && fake.held))
			return t;
		if (!t && s->ends)
			return NULL;
		pthread_cond_wait(&fake.changed, &fake.lock);
	}
}

static void *
work(void *arg)
{
	struct CUstream_st *s = arg;
	struct task *t;

	fake_lock();
	while ((t = next_task(s))) {
		STAILQ_REMOVE_HEAD(&s->tasks, link);
		s->busy = true;
		fake_unlock();
		if (t->n) {
			usleep(fake.delay);
			memcpy(t->to, t->from, t->n);
		}
		if (t->fn)
			t->fn(t->arg);
		fake_lock();
		if (t->event && !t->waits && t->event->reached < t->number)
			t->event->reached = t->number;
		s->busy = false;
		free(t);
		pthread_cond_broadcast(&fake.changed);
	}
	fake_unlock();
	return NULL;
}

void
fake_enqueue(struct CUstream_st *s, struct task t)
{
	struct task *copy = malloc(sizeof(*copy));

	s = s ? s : &fake.legacy;
	if (!s->started && pthread_create(&s->thread, NULL, work, s) != 0)
		abort();
	s->started = true;
	*copy = t;
	STAILQ_INSERT_TAIL(&s->tasks, copy, link);
	pthread_cond_broadcast(&fake.changed);
}

unsigned
cudaStreamCreateWithFlags(struct CUstream_st **stream, unsigned flags)
{
	fake_lock();
	if (fake_say(__func__, true) == 0) {
		*stream = calloc(1, sizeof(**stream));
		STAILQ_INIT(&(*stream)->tasks);
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaStreamDestroy(struct CUstream_st *s)
{
	bool started;

	fake_lock();
	fake_say(__func__, true);
	s->ends = true;
	started = s->started;
	pthread_cond_broadcast(&fake.changed);
	fake_unlock();
	if (started)
		pthread_join(s->thread, NULL);
	free(s);
	return fake_result;
}

unsigned
cudaStreamQuery(struct CUstream_st *s)
{
	fake_lock();
	s = s ? s : &fake.legacy;
	if (fake_say(__func__, true) == 0 && (s->busy || !STAILQ_EMPTY(&s->tasks)))
		fake_result = dcudaErrorNotReady;
	fake_unlock();
	return fake_result;
}

unsigned
cudaStreamWaitEvent(struct CUstream_st *s, struct CUevent_st *event, unsigned flags)
{
	fake_lock();
	if (fake_say(__func__, true) == 0)
		fake_enqueue(
		    s, (struct task){.event = event, .number = event->recorded, .waits = true});
	fake_unlock();
	return fake_result;
}

unsigned
cudaStreamIsCapturing(struct CUstream_st *s, unsigned *status)
{
	fake_lock();
	if (fake_say(__func__, true) == 0) {
		if (!s && fake.implicit_capture)
			fake_result = dcudaErrorStreamCaptureImplicit;
		else
			*status = s && s->captured;
	}
	fake_unlock();
	return fake_result;
}

/* ---- events ---- */

unsigned
cudaEventCreateWithFlags(struct CUevent_st **event, unsigned flags)
{
	fake_lock();
	if (fake_say(__func__, true) == 0)
		*event = calloc(1, sizeof(**event));
	fake_unlock();
	return fake_result;
}

unsigned
cudaEventDestroy(struct CUevent_st *event)
{
	fake_lock();
	fake_say(__func__, true);
	while (event->reached < event->recorded)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake_unlock();
	free(event);
	return fake_result;
}

unsigned
cudaEventRecord(struct CUevent_st *event, struct CUstream_st *s)
{
	fake_lock();
	if (fake_say(__func__, true) == 0) {
		fake.broken += s ? s->captured : fake.implicit_capture;
		fake_enqueue(s, (struct task){.event = event, .number = ++event->recorded});
	}
	fake_unlock();
	return fake_result;
}

unsigned
cudaEventQuery(struct CUevent_st *event)
{
	fake_lock();
	if (fake_say(__func__, true) == 0 && event->reached < event->recorded)
		fake_result = dcudaErrorNotReady;
	fake_unlock();
	return fake_result;
}
