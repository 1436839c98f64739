/*
 * Asks torch's flight recorders without the GIL, so that they are known also while C code holds it.
 * They are asked through the functions of libtorch that torch's own WorkerServer calls to answer
 * `fr_trace_json` (torch/csrc/distributed/c10d/control_plane/Handlers.cpp), in a thread that is
 * started when they are asked for the first time. The server itself is not used: it keeps 9
 * threads, or as many as there are CPUs, prints when it starts, ends the process if one of them
 * cannot be started, and with it the rank if a child that user code has forked ends.
 *
 * The functions are C++, and return a std::string. If one throws, its thread stays there, and the
 * recorders are not asked any more.
 */
#define _GNU_SOURCE
#include "rank/cuda.h"
#include "rank/flight.h"
#include "rank/rank.h"
#include "thread.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* libstdc++'s std::string, the newer one: B5cxx11 in the names below. */
struct string {
	char *p;
	size_t n;
	char own[16]; /* where p points if n is below 16 */
};

enum { WAIT_NS = 100000000 }; /* of fork(2), for an answer */

typedef struct string dump_fn(bool collectives, bool only_active);
typedef void terminate_fn(void);

static const struct {
	const char *name, *library, *symbol;
} recorders[FLIGHT_RECORDERS] = {
    {"gloo", "libtorch_cpu.so", "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb"},
    {"nccl", "libtorch_cuda.so", "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb"},
};

static struct {
	dump_fn *dump[FLIGHT_RECORDERS]; /* NULL: torch has none */
	void (*release)(void *p);	 /* operator delete */
	terminate_fn *(*set_terminate)(terminate_fn *f);
	terminate_fn *theirs;

	/* I/O thread only */
	void (*then)(void);
	bool started, waits;
	char main; /* the main thread's state when they were asked */

	int answered; /* an eventfd, written when they have answered */
	pthread_mutex_t lock;
	pthread_cond_t changed, rested;
	/* guarded by lock */
	pthread_t thread;
	bool asked, busy; /* busy: or lost */
	bool late;	  /* fork(2) has waited for it, and does no more */
	bool wanted[FLIGHT_RECORDERS];
	struct buf groups;
	struct buf text[FLIGHT_RECORDERS]; /* of the last answer, or Python's */
} self = {.answered = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void
rank_flight_lock(void)
{
	struct timespec until = after_ns(WAIT_NS);

	pthread_mutex_lock(&self.lock);
	while (self.busy && !self.late)
		self.late = pthread_cond_timedwait(&self.rested, &self.lock, &until) != 0;
}

void
rank_flight_unlock(void)
{
	pthread_mutex_unlock(&self.lock);
}

unsigned
rank_flight_find(void)
{
	unsigned found = 0;

	*(void **)&self.release = dlsym(RTLD_DEFAULT, "_ZdlPv");
	*(void **)&self.set_terminate = dlsym(RTLD_DEFAULT, "_ZSt13set_terminatePFvvE");
	for (size_t i = 0; i < FLIGHT_RECORDERS; i++) {
		void *library = dlopen(recorders[i].library, RTLD_NOLOAD | RTLD_LAZY);

		if (!library)
			continue;
		/* libtorch's own, or of what it is linked with */
		if (!self.release)
			*(void **)&self.release = dlsym(library, "_ZdlPv");
		if (!self.set_terminate)
			*(void **)&self.set_terminate = dlsym(library, "_ZSt13set_terminatePFvvE");
		if (self.release && self.set_terminate)
			*(void **)&self.dump[i] = dlsym(library, recorders[i].symbol);
		found |= self.dump[i] ? 1U << i : 0;
	}
	return found;
}

/* std::terminate() in any thread while ours calls libtorch. */
static void
on_terminate(void)
{
	if (pthread_equal(pthread_self(), self.thread)) {
		self.set_terminate(self.theirs);
		for (;;)
			pause();
	}
	if (self.theirs)
		self.theirs();
	abort();
}

bool
rank_flight_ready(void)
{
	static _Thread_local bool ready;
	static atomic_bool noted;
	int device = ready ? -1 : cuda_device_in_use();
	struct err e;

	if (device < 0)
		return true; /* there is no event yet */
	ready = cuda_open("", &e) == 0 && cuda_use(device, &e) == 0 && cuda_thread_begin(&e) == 0;
	if (!ready && !atomic_exchange(&noted, true))
		note("torch's recorder of NCCL is not asked: %s", e.text);
	return ready;
}

static void
ask(size_t i, struct buf *out)
{
	struct string s;

	self.theirs = self.set_terminate(on_terminate);
	s = self.dump[i](true, false);
	self.set_terminate(self.theirs);
	if (s.n < sizeof(s.own))
		return; /* at most an empty object */
	buf_add(out, s.p, s.n);
	self.release(s.p);
}

static void *
work(void *arg)
{
	uint64_t one = 1;

	prctl(PR_SET_NAME, "ddip-flight");
	pthread_mutex_lock(&self.lock);
	self.thread = pthread_self();
	for (;;) {
		struct buf text[FLIGHT_RECORDERS] = {{0}};
		bool wanted[FLIGHT_RECORDERS];

		while (!self.asked)
			pthread_cond_wait(&self.changed, &self.lock);
		self.asked = false;
		memcpy(wanted, self.wanted, sizeof(wanted));
		pthread_mutex_unlock(&self.lock);
		for (size_t i = 0; i < FLIGHT_RECORDERS; i++)
			if (wanted[i] && self.dump[i] && (i != FLIGHT_NCCL || rank_flight_ready()))
				ask(i, &text[i]);
		pthread_mutex_lock(&self.lock);
		for (size_t i = 0; i < FLIGHT_RECORDERS; i++) {
			if (!text[i].n)
				continue; /* Python may have asked this one */
			buf_free(&self.text[i]);
			self.text[i] = text[i];
		}
		self.busy = self.late = false;
		pthread_cond_broadcast(&self.rested);
		if (write(self.answered, &one, sizeof(one)) < 0)
			note("the flight recorder: %s", strerror(errno));
	}
	return NULL;
}

static void
on_answered(void *arg, uint32_t events)
{
	uint64_t count;

	if (read(self.answered, &count, sizeof(count)) != sizeof(count) || !self.waits)
		return;
	self.waits = false;
	self.then();
}

void
rank_flight_init(struct loop *l, void (*then)(void))
{
	self.then = then;
	self.answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self.answered < 0)
		die("the flight recorder: %s", strerror(errno));
	thread_cond(&self.rested);
	loop_fd(l, self.answered, EPOLLIN, on_answered, NULL);
}

void
rank_flight_groups(struct slice lines)
{
	pthread_mutex_lock(&self.lock);
	buf_clear(&self.groups);
	buf_add(&self.groups, lines.p, lines.n);
	for (size_t i = 0; i < FLIGHT_RECORDERS; i++)
		self.wanted[i] = self.groups.n && strstr(self.groups.p, recorders[i].name);
	pthread_mutex_unlock(&self.lock);
}

void
rank_flight_text(enum flight_recorder which, struct slice json)
{
	pthread_mutex_lock(&self.lock);
	buf_clear(&self.text[which]);
	buf_add(&self.text[which], json.p, json.n);
	pthread_mutex_unlock(&self.lock);
}

char
rank_flight_state(void)
{
	char path[64], *end;
	struct buf text = {0};
	char state = '-';

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	if (read_file(path, &text) == 0 && (end = strrchr(text.p, ')')) && end[1] == ' ' && end[2])
		state = end[2];
	buf_free(&text);
	return state;
}

void
rank_flight_ask(void)
{
	pthread_t thread;

	self.waits = false;
	self.main = rank_flight_state();
	pthread_mutex_lock(&self.lock);
	for (size_t i = 0; i < FLIGHT_RECORDERS; i++) {
		buf_clear(&self.text[i]);
		self.waits |= self.wanted[i] && self.dump[i] && !self.busy;
	}
	if (self.waits) {
		self.asked = self.busy = true;
		pthread_cond_signal(&self.changed);
	}
	pthread_mutex_unlock(&self.lock);
	if (!self.waits || self.started)
		return;
	self.started = thread_start(&thread, work, NULL) == 0;
	self.waits = self.started;
	if (self.started)
		pthread_detach(thread);
}

bool
rank_flight_waits(void)
{
	return self.waits;
}

void
rank_flight_print(struct buf *out)
{
	buf_addf(out, "%s %c\n", rank_collective_aside ? "aside" : "main", self.main);
	rank_collective_profile(out);
	pthread_mutex_lock(&self.lock);
	for (size_t i = 0; i < FLIGHT_RECORDERS; i++) {
		struct slice json = {self.text[i].p, self.text[i].n};

		if (json.n && !flight_print(json, (struct slice){self.groups.p, self.groups.n},
				  recorders[i].name, now_wall(), out))
			note("the flight recorder of %s says what is not understood",
			    recorders[i].name);
	}
	pthread_mutex_unlock(&self.lock);
}
