/*
 * A thread that queries NVML: first for the list of GPUs, which never changes afterwards
 * (repartitioning a GPU requires a new mount), later for their activity, whenever somebody reads
 * it. The loop never calls NVML: initializing it takes about 100 ms, and a driver with a broken GPU
 * may never respond.
 */
#include "host/gpustat.h"
#include "base/daemon.h"
#include "thread.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { LIST_S = 10, ANSWER_MS = 3000, FRESH_MS = 200, JOIN_MS = 500 };

/* Shared with the thread. Access with the lock held. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool listed, asked, ended, gone; /* gone: the thread is about to exit */
	struct nvml_gpu *list;		 /* does not change once it is listed */
	size_t n;
	struct err why;	       /* NVML is missing or does not work */
	struct nvml_use *made; /* one per GPU of the list, for the loop to take; NULL: taken */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Used by the loop only, except that the thread writes to wakeup_fd. */
static pthread_t thread;
static bool started, late;
static int wakeup_fd = -1;
static struct watch *watch;
static struct timer *answer_timer;
static void (*on_answer)(void);
static struct nvml_use *use; /* the last one taken; NULL: none yet */
static size_t use_n;
static uint64_t use_time;

static void
free_use(struct nvml_use *all, size_t n)
{
	for (size_t i = 0; all && i < n; i++)
		free(all[i].process);
	free(all);
}

/* ---- the thread ---- */

static void
look(void)
{
	struct nvml_gpu *list = NULL;
	struct err why = {0};
	size_t n = 0;

	if (nvml_open(&why) == 0)
		nvml_list(&list, &n, &why);
	if (why.no && why.no != ENOENT)
		note("%s", why.text);
	pthread_mutex_lock(&shared.lock);
	shared.list = list;
	shared.n = n;
	shared.why = why;
	shared.listed = true;
	pthread_cond_broadcast(&shared.changed);
	pthread_mutex_unlock(&shared.lock);
}

static void *
run(void *unused)
{
	look();
	pthread_mutex_lock(&shared.lock);
	for (;;) {
		struct nvml_use *made;

		while (!shared.asked && !shared.ended)
			pthread_cond_wait(&shared.changed, &shared.lock);
		if (shared.ended)
			break;
		shared.asked = false;
		pthread_mutex_unlock(&shared.lock);
		made = xcalloc(shared.n + 1, sizeof(*made));
		for (size_t i = 0; i < shared.n; i++)
			nvml_use(&shared.list[i], &made[i]);
		pthread_mutex_lock(&shared.lock);
		free_use(shared.made, shared.n);
		shared.made = made;
		eventfd_write(wakeup_fd, 1);
	}
	pthread_mutex_unlock(&shared.lock);
	nvml_close();
	pthread_mutex_lock(&shared.lock);
	shared.gone = true;
	pthread_cond_broadcast(&shared.changed);
	pthread_mutex_unlock(&shared.lock);
	return NULL;
}

/* ---- the loop's side ---- */

static void
answer(void)
{
	loop_timer_del(answer_timer);
	answer_timer = NULL;
	if (on_answer)
		on_answer();
}

static void
on_wakeup(void *arg, uint32_t events)
{
	struct nvml_use *made;
	eventfd_t count;

	eventfd_read(wakeup_fd, &count);
	pthread_mutex_lock(&shared.lock);
	made = shared.made;
	shared.made = NULL;
	pthread_mutex_unlock(&shared.lock);
	if (!made)
		return;
	free_use(use, use_n);
	use = made;
	use_n = shared.n;
	use_time = now_ns();
	late = false;
	answer();
}

void
gpustat_start(void)
{
	int r;

	thread_cond(&shared.changed);
	wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wakeup_fd < 0)
		die("eventfd: %s", strerror(errno));
	watch = loop_fd(daemon_.loop, wakeup_fd, EPOLLIN, on_wakeup, NULL);
	r = thread_start(&thread, run, NULL);
	if (r != 0)
		die("cannot start a thread: %s", strerror(r));
	started = true;
}

void
gpustat_stop(void)
{
	struct timespec until = after_ns(JOIN_MS * NS_PER_MS);
	bool gone;

	if (!started)
		return;
	started = false;
	loop_timer_del(answer_timer);
	loop_fd_del(watch);
	pthread_mutex_lock(&shared.lock);
	shared.ended = true;
	pthread_cond_broadcast(&shared.changed);
	while (!shared.gone && pthread_cond_timedwait(&shared.changed, &shared.lock, &until) == 0)
		;
	gone = shared.gone;
	pthread_mutex_unlock(&shared.lock);
	/* a thread that is stuck in the driver ends with the process */
	if (!gone)
		return;
	pthread_join(thread, NULL);
	free_use(use, use_n);
	free_use(shared.made, shared.n);
	free(shared.list);
	close(wakeup_fd);
}

/* Is the list there? Waits for it, but only the first time. */
static bool
listed(void)
{
	static bool waited;
	struct timespec until = after_ns(LIST_S * NS_PER_S);
	bool is;

	pthread_mutex_lock(&shared.lock);
	while (started && !shared.listed && !waited &&
	       pthread_cond_timedwait(&shared.changed, &shared.lock, &until) == 0)
		;
	is = shared.listed;
	pthread_mutex_unlock(&shared.lock);
	if (!is && !waited)
		note("NVML has not answered within %d s: going on without GPUs", LIST_S);
	waited = true;
	return is;
}

void
gpustat_visible(struct gpus *out, struct err *why)
{
	bool is = listed();

	if (is && shared.why.no == 0) {
		gpus_visible(shared.list, shared.n, getenv("CUDA_VISIBLE_DEVICES"), out, why);
		return;
	}
	*out = (struct gpus){.unknown = true};
	*why = shared.why;
	if (!is)
		fail(why, ETIMEDOUT, "NVML has not answered within %d s", LIST_S);
}

int
gpustat_choose(const char *words, struct gpus *out, struct err *e)
{
	struct gpus from;
	struct err why, said;
	int r;

	gpustat_visible(&from, &why);
	r = gpus_choose(&from, words, out, e);
	if (r == 0 || !why.no)
		return r;
	if (from.unknown)
		return fail(e, EINVAL,
		    "gpus: want all or none, because the GPUs of this host are unknown: %s",
		    why.text);
	said = *e;
	return fail(e, EINVAL, "%.600s (%.300s)", said.text, why.text);
}

void
gpustat_chosen(const char *words, struct gpus *out)
{
	struct err e;

	if (gpustat_choose(words, out, &e) < 0)
		*out = (struct gpus){.unknown = true};
}

void
gpustat_env(const char *words, int rank, struct buf *env)
{
	struct gpus gpus;

	gpustat_chosen(words, &gpus);
	gpus_env(&gpus, rank, env);
}

int
gpustat_local_rank(const char *words, int rank)
{
	struct gpus gpus;

	gpustat_chosen(words, &gpus);
	return gpus_local_rank(&gpus, rank);
}

bool
gpustat_sees_one(const char *words)
{
	struct gpus gpus;

	gpustat_chosen(words, &gpus);
	return gpus.alone;
}

int
gpustat_local_size(const char *words, int size)
{
	return gpustat_sees_one(words) ? 1 : size;
}

/* ---- activity ---- */

const struct nvml_use *
gpustat_seen(const struct nvml_gpu *gpu)
{
	size_t i = (size_t)(gpu - shared.list);

	return use && i < use_n ? &use[i] : NULL;
}

bool
gpustat_is_late(void)
{
	return late;
}

bool
gpustat_is_fresh(void)
{
	return late || (use && now_ns() - use_time < FRESH_MS * NS_PER_MS);
}

static void
too_late(void *arg)
{
	answer_timer = NULL;
	late = true;
	note("NVML has not answered within %d ms", ANSWER_MS);
	answer();
}

void
gpustat_on_answer(void (*fn)(void))
{
	on_answer = fn;
}

bool
gpustat_is_asked(void)
{
	return answer_timer != NULL;
}

void
gpustat_ask(void)
{
	if (!answer_timer)
		answer_timer = loop_timer(daemon_.loop, ANSWER_MS, too_late, NULL);
	pthread_mutex_lock(&shared.lock);
	shared.asked = true;
	pthread_cond_broadcast(&shared.changed);
	pthread_mutex_unlock(&shared.lock);
}
