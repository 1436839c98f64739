/*
 * Has Python do what needs the GIL, for the I/O thread, which must never wait for it: a thread of
 * its own does.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "thread.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
	bool started; /* I/O thread only */
	void (*run)(void);
	int done; /* an eventfd, written after run() */

	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned wanted, running; /* bits of enum gil_job */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .done = -1};

void
rank_gil_done(void)
{
	uint64_t one = 1;

	if (write(self.done, &one, sizeof(one)) < 0)
		note("the GIL: %s", strerror(errno));
}

static void *
work(void *arg)
{
	prctl(PR_SET_NAME, "ddip-gil");
	for (;;) {
		pthread_mutex_lock(&self.lock);
		self.running = 0;
		while (!self.wanted)
			pthread_cond_wait(&self.changed, &self.lock);
		pthread_mutex_unlock(&self.lock);
		self.run();
		rank_gil_done();
	}
	return NULL;
}

unsigned
rank_gil_take(void)
{
	unsigned jobs;

	pthread_mutex_lock(&self.lock);
	jobs = self.running = self.wanted;
	self.wanted = 0;
	pthread_mutex_unlock(&self.lock);
	return jobs;
}

static void
on_done(void *arg, uint32_t events)
{
	uint64_t count;

	if (read(self.done, &count, sizeof(count)) == sizeof(count))
		rank_stack_found();
}

static bool
start(void)
{
	pthread_t thread;

	if (!self.started && thread_start(&thread, work, NULL) == 0) {
		pthread_detach(thread);
		self.started = true;
	}
	return self.started;
}

void
rank_gil_init(struct loop *l)
{
	self.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self.done < 0)
		die("the GIL: %s", strerror(errno));
	loop_fd(l, self.done, EPOLLIN, on_done, NULL);
}

void
rank_gil_begin(void (*run)(void))
{
	self.run = run;
}

bool
rank_gil_want(enum gil_job job)
{
	if (!self.run || !start())
		return false;
	pthread_mutex_lock(&self.lock);
	self.wanted |= job;
	pthread_cond_signal(&self.changed);
	pthread_mutex_unlock(&self.lock);
	return true;
}

bool
rank_gil_forget(enum gil_job job)
{
	bool runs;

	pthread_mutex_lock(&self.lock);
	runs = self.running & job;
	if (!runs)
		self.wanted &= ~(unsigned)job;
	pthread_mutex_unlock(&self.lock);
	return !runs;
}
