/*
 * One thread asks NVML: first for the list of GPUs, which then never changes (a GPU that is divided
 * anew needs a new mount), later for what they do, whenever somebody reads. The loop never calls
 * NVML: starting it takes some 100 ms, and a driver with a broken GPU may not answer at all.
 */
#include "host/gpustat.h"
#include "base/daemon.h"
#include "group/group.h"
#include "group/rank.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { LIST_S = 10, ANSWER_MS = 3000, FRESH_MS = 200, JOIN_MS = 500 };

/* Shared with the thread: under the lock. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool listed, asked, ended, gone; /* gone: the thread is at its end */
	struct nvml_gpu *list;		 /* as soon as it is listed it does not change any more */
	size_t n;
	struct err why;	       /* there is no NVML, or it does not work */
	struct nvml_use *made; /* one for each of the list, for the loop to take; NULL: taken */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The loop's own. */
static pthread_t thread;
static bool started, late;
static int bell = -1;
static struct watch *watch;
static struct timer *patience;
static struct req_list waiting = TAILQ_HEAD_INITIALIZER(waiting);
static struct nvml_use *use; /* the last that was taken; NULL: never */
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
		eventfd_write(bell, 1);
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

static void answer_all(void);

static void
on_bell(void *arg, uint32_t events)
{
	struct nvml_use *made;
	eventfd_t count;

	eventfd_read(bell, &count);
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
	answer_all();
}

void
gpustat_start(void)
{
	pthread_condattr_t clock;
	sigset_t all, old;
	int r;

	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&shared.changed, &clock);
	pthread_condattr_destroy(&clock);
	bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bell < 0)
		die("eventfd: %s", strerrordesc_np(errno));
	watch = loop_fd(daemon_.loop, bell, EPOLLIN, on_bell, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		die("cannot start a thread: %s", strerrordesc_np(r));
	started = true;
}

static struct timespec
after_ms(uint64_t ms)
{
	uint64_t at = now_ns() + ms * 1000000;

	return (struct timespec){(time_t)(at / 1000000000), (long)(at % 1000000000)};
}

void
gpustat_stop(void)
{
	struct timespec until = after_ms(JOIN_MS);
	struct req *r;
	bool gone;

	if (!started)
		return;
	started = false;
	while ((r = TAILQ_FIRST(&waiting))) {
		TAILQ_REMOVE(&waiting, r, link);
		req_done(r, -ENODEV);
	}
	loop_timer_del(patience);
	loop_fd_del(watch);
	pthread_mutex_lock(&shared.lock);
	shared.ended = true;
	pthread_cond_broadcast(&shared.changed);
	while (!shared.gone && pthread_cond_timedwait(&shared.changed, &shared.lock, &until) == 0)
		;
	gone = shared.gone;
	pthread_mutex_unlock(&shared.lock);
	/* one that the driver does not let go of ends with the process */
	if (!gone)
		return;
	pthread_join(thread, NULL);
	free_use(use, use_n);
	free_use(shared.made, shared.n);
	free(shared.list);
	close(bell);
}

/* The list, waited for once; false: it has not come. */
static bool
listed(void)
{
	static bool waited;
	struct timespec until = after_ms(LIST_S * 1000);
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

/* What the daemon may choose from; *why: what is wrong with it. */
static void
visible(struct gpus *out, struct err *why)
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

	visible(&from, &why);
	r = gpus_choose(&from, words, out, e);
	if (r == 0 || !why.no)
		return r;
	if (from.unknown)
		return fail(e, EINVAL,
		    "gpus: want all or none, since nobody can tell which GPUs there are: %s",
		    why.text);
	said = *e;
	return fail(e, EINVAL, "%.600s (%.300s)", said.text, why.text);
}

/* The group's GPUs. What was good when it was set is good now: the list does not change. */
static void
group_gpus(const struct group *g, struct gpus *out)
{
	struct err e;

	if (gpustat_choose(g->set.gpus, out, &e) < 0)
		*out = (struct gpus){.unknown = true};
}

void
gpustat_env(const struct group *g, int rank, struct buf *env)
{
	struct gpus gpus;

	group_gpus(g, &gpus);
	gpus_env(&gpus, rank, env);
}

int
gpustat_local_rank(const struct group *g, int rank)
{
	struct gpus gpus;

	group_gpus(g, &gpus);
	return gpus_local_rank(&gpus, rank);
}

int
gpustat_local_size(const struct group *g)
{
	struct gpus gpus;

	group_gpus(g, &gpus);
	return gpus.alone ? 1 : g->size;
}

/* ---- texts ---- */

/* What was seen last, NULL: nothing yet. */
static const struct nvml_use *
seen(const struct nvml_gpu *gpu)
{
	size_t i = (size_t)(gpu - shared.list);

	return use && i < use_n ? &use[i] : NULL;
}

static void
add_number(struct buf *out, const char *key, bool is, unsigned long long v)
{
	if (is)
		buf_addf(out, "%s%llu", key, v);
	else
		buf_addf(out, "%s-", key);
}

/* 'text', on one line. */
static void
add_quoted(struct buf *out, const char *key, const char *text)
{
	buf_addf(out, "%s'", key);
	for (; *text; text++)
		buf_addc(out, *text == '\'' || *text == '\n' ? ' ' : *text);
	buf_addc(out, '\'');
}

static void
add_use(struct buf *out, const struct nvml_use *u)
{
	add_number(out, " used_bytes=", u && u->has_memory, u ? u->used : 0);
	add_number(out, " total_bytes=", u && u->has_memory, u ? u->total : 0);
	add_number(out, " util_pct=", u && u->util >= 0, u ? (unsigned long long)u->util : 0);
	add_number(out, " temp_c=", u && u->temp >= 0, u ? (unsigned long long)u->temp : 0);
	buf_adds(out, u && u->n >= 0 ? " pids=" : " pids=-");
	for (int i = 0; u && i < u->n; i++)
		buf_addf(out, "%s%u", i ? "," : "", u->process[i].pid);
	if (u && *u->error)
		add_quoted(out, " error=", u->error);
	if (late)
		add_quoted(out, " error=", "NVML does not answer: this is what it said before");
}

int
gpustat_text(const struct place *at, struct buf *out, struct err *e)
{
	struct gpus gpus, from;
	struct err why;
	char label[GPUS_LABEL];

	group_gpus(at->g, &gpus);
	visible(&from, &why);
	if (gpus.none)
		buf_adds(out, "# gpus none: the ranks see no GPU\n");
	else if (gpus.n == 0)
		buf_addf(out, "# no GPU that is known of%s%s\n", why.no ? ": " : "", why.text);
	else if (why.no)
		buf_addf(out, "# %s\n", why.text);
	for (int i = 0; i < gpus.n; i++) {
		const struct nvml_gpu *gpu = gpus.gpu[i];

		buf_addf(out, "%d index=%s uuid=%s", i, gpus_label(gpu, label), gpu->uuid);
		add_quoted(out, " name=", gpu->name);
		add_use(out, seen(gpu));
		buf_addc(out, '\n');
	}
	return 0;
}

static const struct nvml_gpu *
gpu_of(const struct rank *k)
{
	struct gpus gpus;

	group_gpus(k->g, &gpus);
	return k->number < gpus.n ? gpus.gpu[k->number] : NULL;
}

/* Memory that the rank's process has there. NVML numbers processes as the host does, which in a
 * container are other numbers. */
static bool
memory_of(const struct rank *k, const struct nvml_use *u, unsigned long long *bytes)
{
	for (int i = 0; u && k->pid && i < u->n; i++)
		if (u->process[i].pid == (uint32_t)k->pid && u->process[i].bytes != UINT64_MAX) {
			*bytes = u->process[i].bytes;
			return true;
		}
	return false;
}

void
gpustat_rank_words(const struct rank *k, struct buf *out)
{
	const struct nvml_gpu *gpu = gpu_of(k);
	const struct nvml_use *u = gpu ? seen(gpu) : NULL;
	unsigned long long bytes = 0;
	char label[GPUS_LABEL];

	if (!gpu) {
		buf_adds(out, " gpu=-");
		return;
	}
	buf_addf(out, " gpu=%s", gpus_label(gpu, label));
	add_number(out, " gpu_bytes=", memory_of(k, u, &bytes), bytes);
	add_number(out, " gpu_util_pct=", u && u->util >= 0, u ? (unsigned long long)u->util : 0);
}

void
gpustat_rank_lines(const struct rank *k, struct buf *out)
{
	const struct nvml_gpu *gpu = gpu_of(k);
	const struct nvml_use *u = gpu ? seen(gpu) : NULL;
	unsigned long long bytes = 0;
	char label[GPUS_LABEL];

	buf_addf(out, "gpu %s\n", gpu ? gpus_label(gpu, label) : "-");
	if (!gpu)
		return;
	buf_addf(out, "gpu_uuid %s\ngpu_name %s\n", gpu->uuid, gpu->name);
	add_number(out, "gpu_bytes ", memory_of(k, u, &bytes), bytes);
	add_number(out, "\ngpu_used_bytes ", u && u->has_memory, u ? u->used : 0);
	add_number(out, "\ngpu_total_bytes ", u && u->has_memory, u ? u->total : 0);
	add_number(out, "\ngpu_util_pct ", u && u->util >= 0, u ? (unsigned long long)u->util : 0);
	add_number(out, "\ngpu_processes ", u && u->n >= 0, u ? (unsigned long long)u->n : 0);
	buf_addc(out, '\n');
	if (u && *u->error)
		buf_addf(out, "gpu_error %s\n", u->error);
}

/* ---- open ---- */

/* Makes the text of each that waits from what is known now. */
static void
answer_all(void)
{
	struct req *r;

	loop_timer_del(patience);
	patience = NULL;
	while ((r = TAILQ_FIRST(&waiting))) {
		struct file *f = r->file;

		TAILQ_REMOVE(&waiting, r, link);
		buf_clear(&f->text);
		req_done(r, f->node->row->text(&f->node->at, &f->text, &r->err));
	}
}

static void
too_late(void *arg)
{
	patience = NULL;
	late = true;
	note("NVML has not answered within %d ms", ANSWER_MS);
	answer_all();
}

static void
stop_waiting(struct req *r, enum interrupt how)
{
	TAILQ_REMOVE(&waiting, r, link);
	req_done(r, -EINTR);
}

/* The text is made already, from what was seen before: good enough if that is no time ago, if there
 * is no GPU in it, or if the answer is overdue already (then the text says so). */
static int
open_fresh(struct file *f, struct req *r)
{
	struct gpus gpus;

	group_gpus(f->node->at.g, &gpus);
	if (gpus.n == 0 || late || (use && now_ns() - use_time < FRESH_MS * 1000000ull))
		return 0;
	r->file = f;
	TAILQ_INSERT_TAIL(&waiting, r, link);
	if (!patience)
		patience = loop_timer(daemon_.loop, ANSWER_MS, too_late, NULL);
	pthread_mutex_lock(&shared.lock);
	shared.asked = true;
	pthread_cond_broadcast(&shared.changed);
	pthread_mutex_unlock(&shared.lock);
	return req_park(r, stop_waiting);
}

const struct file_ops gpustat_ops = {.open = open_fresh};
