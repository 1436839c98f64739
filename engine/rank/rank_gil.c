/*
 * Holds the GIL for the I/O thread: no Python code runs meanwhile, so that the stacks of all
 * threads stand still and can be walked. A thread of its own waits for the GIL, since the I/O
 * thread must never do that.
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

/* After so many ticks, each of which may last longer while the machine stands still, code outside
 * of Python must be holding the GIL. */
enum { TICK_MS = 10, TICKS = 30 };

static struct {
	/* I/O thread only */
	struct loop *loop;
	struct timer *limit;
	void (*then)(bool held); /* NULL: called, or nothing is to be called */
	int ticks;
	bool started;

	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t last, wanted,
	    held; /* numbers of requests; 0: the GIL is not wanted, or not held */

	int (*take)(void);
	void (*drop)(int state);
	int taken; /* an eventfd, written when the GIL has been taken */
	_Atomic unsigned long thread;
	_Atomic bool runs; /* it has the GIL, and runs Python code there */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .taken = -1};

static void *
work(void *arg)
{
	uint64_t one = 1;

	prctl(PR_SET_NAME, "ddip-gil");
	self.thread = (unsigned long)pthread_self();
	pthread_mutex_lock(&self.lock);
	for (;;) {
		int state;

		while (!self.wanted)
			pthread_cond_wait(&self.changed, &self.lock);
		pthread_mutex_unlock(&self.lock);
		state = self.take();
		pthread_mutex_lock(&self.lock);
		self.held = self.wanted;
		if (self.held && write(self.taken, &one, sizeof(one)) < 0)
			note("the GIL: %s", strerror(errno));
		while (self.held && self.wanted == self.held)
			pthread_cond_wait(&self.changed, &self.lock);
		self.held = 0;
		pthread_mutex_unlock(&self.lock);
		self.drop(state); /* also if it is wanted again: Python has to go on in between */
		pthread_mutex_lock(&self.lock);
	}
	return NULL;
}

static void
go_on(bool held)
{
	void (*then)(bool held) = self.then;

	loop_timer_del(self.limit);
	self.limit = NULL;
	self.then = NULL;
	if (then)
		then(held);
}

static void
on_taken(void *arg, uint32_t events)
{
	uint64_t count;
	bool is_held;

	if (read(self.taken, &count, sizeof(count)) != sizeof(count))
		return;
	pthread_mutex_lock(&self.lock);
	is_held = self.held && self.held == self.wanted;
	pthread_mutex_unlock(&self.lock);
	if (is_held)
		go_on(true);
}

static void
on_tick(void *arg)
{
	bool waits =
	    ++self.ticks < TICKS || self.runs; /* a stack that changes must not be walked */

	self.limit = waits ? loop_timer(self.loop, TICK_MS, on_tick, NULL) : NULL;
	if (!waits)
		go_on(false);
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

static void
want(uint64_t number)
{
	pthread_mutex_lock(&self.lock);
	self.wanted = number;
	pthread_cond_signal(&self.changed);
	pthread_mutex_unlock(&self.lock);
}

void
rank_gil_init(struct loop *l)
{
	self.loop = l;
	self.taken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self.taken < 0)
		die("the GIL: %s", strerror(errno));
	loop_fd(l, self.taken, EPOLLIN, on_taken, NULL);
}

void
rank_gil_begin(int (*take)(void), void (*drop)(int state))
{
	self.drop = drop;
	self.take = take;
}

void
rank_gil_hold(void (*then)(bool held))
{
	self.then = then;
	self.ticks = 0;
	if (!self.take) {
		go_on(false);
		return;
	}
	self.limit = loop_timer(self.loop, TICK_MS, on_tick, NULL);
	if (start())
		want(++self.last);
}

void
rank_gil_release(void)
{
	self.then = NULL;
	go_on(false);
	if (self.started)
		want(0);
}

void
rank_gil_runs(bool python)
{
	self.runs = python;
}

unsigned long
rank_gil_thread(void)
{
	return self.thread;
}
