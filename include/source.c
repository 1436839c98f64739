/*
 * Copies bytes of files and processes, at once or on threads that read into buffers of their own,
 * and passes reads of others on to their providers.
 */
#include "source.h"
#include "thread.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	THREADS = 3,
	/* The memory of a rank may map a file of this mount: whoever reads it then waits for
	 * another thread. If none has taken a job for so long, one more is started. */
	STUCK_NS = 100000000,
	EXTRA = 64 /* at most so many more */
};

struct subtask {
	struct source source;
	uint64_t offset;
	size_t n;
	void (*fn)(void *arg, const char *p, ssize_t n);
	void (*call)(void *arg); /* copies nothing; NULL: fn gets the bytes */
	void *arg;
	TAILQ_ENTRY(subtask) link;
};

static pthread_t threads[THREADS];
static int started; /* how many of them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static TAILQ_HEAD(subtasks, subtask) jobs = TAILQ_HEAD_INITIALIZER(jobs);
static int waiting, idle; /* jobs that wait; threads that wait for one */
static uint64_t taken;	  /* jobs */
static bool stopping;
static pthread_t watcher;     /* starts more threads */
static bool watched, watches; /* there is a watcher; it looks at the jobs that wait */
static pthread_cond_t watch = PTHREAD_COND_INITIALIZER, over;
static int extra; /* threads that it has started */

static ssize_t
copy_fd(int fd, uint64_t offset, char *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = fault("copy.file", EIO)
				? -1
				: pread(fd, p + done, n - done, (off_t)(offset + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		done += (size_t)k;
	}
	return (ssize_t)done;
}

int
source_permits(const struct source *s)
{
	char nothing;
	struct iovec here = {&nothing, 1}, there = {NULL, 1};

	/* there is no memory at NULL, but what may not be read fails otherwise */
	if (fault("copy.process", EPERM) ||
	    (process_vm_readv(s->pid, &here, 1, &there, 1, 0) < 0 && errno != EFAULT))
		return -errno;
	return syscall(SYS_pidfd_send_signal, s->pidfd, 0, NULL, 0) < 0 ? -ESRCH : 0;
}

static ssize_t
copy_process(const struct source *s, uint64_t offset, char *p, size_t n)
{
	struct iovec here = {p, n};
	struct iovec there = {(void *)(uintptr_t)(s->addr + offset), n};
	ssize_t k =
	    fault("copy.process", EPERM) ? -1 : process_vm_readv(s->pid, &here, 1, &there, 1, 0);

	if (k < 0)
		return -errno;
	/* it is still alive, so this was its memory, not that of a later process with its pid */
	if (syscall(SYS_pidfd_send_signal, s->pidfd, 0, NULL, 0) < 0)
		return -ESRCH;
	return k;
}

/* What these n bytes have of the head. */
static struct slice
part_of_head(const struct source *s, uint64_t offset, size_t n)
{
	if (offset >= s->head_n)
		return (struct slice){"", 0};
	return (struct slice){s->head + offset, (size_t)MIN(s->head_n - offset, (uint64_t)n)};
}

ssize_t
source_copy(const struct source *s, uint64_t offset, char *p, size_t n)
{
	struct slice head = part_of_head(s, offset, n);
	ssize_t k = 0;

	memcpy(p, head.p, head.n);
	if (head.n == n)
		return (ssize_t)n;
	offset = offset + head.n - s->head_n;
	if (s->kind == SOURCE_FD)
		k = copy_fd(s->fd, offset, p + head.n, n - head.n);
	else if (s->kind == SOURCE_PROCESS)
		k = copy_process(s, offset, p + head.n, n - head.n);
	else if (s->kind == SOURCE_MAKER)
		k = s->maker->make(s->maker, offset, p + head.n, n - head.n);
	return k < 0 ? k : k + (ssize_t)head.n;
}

/* ---- users of a source ---- */

/* What a source needs for its bytes; NULL: no descriptor. */
static int *
descriptor(struct source *s)
{
	if (s->kind == SOURCE_PROCESS)
		return &s->pidfd;
	return s->kind == SOURCE_FD ? &s->fd : NULL;
}

bool
source_hold(struct source *s)
{
	int *fd = descriptor(s), own = -1;

	if (s->kind == SOURCE_MAKER)
		atomic_fetch_add(&s->maker->users, 1);
	if (!fd)
		return true;
	if (!fault("copy.dup", EMFILE))
		own = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return false;
	*fd = own;
	return true;
}

void
source_release(struct source *s)
{
	int *fd = descriptor(s);

	if (fd)
		close(*fd);
	if (s->kind == SOURCE_MAKER && maker_leave(s->maker))
		s->maker->unused(s->maker);
}

bool
maker_leave(struct maker *m)
{
	return atomic_fetch_sub(&m->users, 1) == 1;
}

/* ---- copy threads ---- */

static bool
is_in_memory(const struct subtask *j)
{
	return j->offset + j->n <= j->source.head_n;
}

/* p has room for what is not in memory. */
static void
run(const struct subtask *j, char *p)
{
	if (j->call)
		j->call(j->arg);
	else if (is_in_memory(j))
		j->fn(j->arg, j->source.head + j->offset, (ssize_t)j->n);
	else
		j->fn(j->arg, p, source_copy(&j->source, j->offset, p, j->n));
	if (j->source.sent)
		j->source.sent(j->source.sent_arg);
}

/* The next job: the first one; for an extra thread the last one, which others may wait for. NULL:
 * this thread is to end. */
static struct subtask *
take(bool is_extra)
{
	struct subtask *j;

	pthread_mutex_lock(&lock);
	while (!(j = TAILQ_FIRST(&jobs)) && !stopping && !is_extra) {
		idle++;
		pthread_cond_wait(&work, &lock);
		idle--;
	}
	if (is_extra)
		j = TAILQ_LAST(&jobs, subtasks);
	if (j) {
		TAILQ_REMOVE(&jobs, j, link);
		waiting--;
		taken++;
	} else if (is_extra) {
		extra--;
		pthread_cond_broadcast(&over);
	}
	pthread_mutex_unlock(&lock);
	return j;
}

static void *
thread(void *is_extra)
{
	struct subtask *j;
	char *p = NULL;
	size_t capacity = 0;

	while ((j = take(is_extra))) {
		if (j->n > capacity && !is_in_memory(j)) {
			free(p);
			p = xmalloc(j->n);
			capacity = j->n;
		}
		run(j, p);
		source_release(&j->source);
		free(j);
	}
	free(p);
	return NULL;
}

/* Starts another thread whenever jobs wait and no thread takes any. */
static void *
look(void *arg)
{
	static int one_more;
	pthread_t more;

	pthread_mutex_lock(&lock);
	while (!stopping) {
		uint64_t before = taken, until = now_ns() + STUCK_NS;
		struct timespec at = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};

		watches = waiting > 0;
		if (!watches) {
			pthread_cond_wait(&watch, &lock);
			continue;
		}
		while (!stopping && pthread_cond_timedwait(&over, &lock, &at) == 0)
			;
		if (!stopping && waiting > 0 && taken == before && extra < EXTRA &&
		    thread_start(&more, thread, &one_more) == 0) {
			pthread_detach(more);
			extra++;
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

int
copy_start(struct err *e)
{
	int r = 0;

	while (started < THREADS && r == 0) {
		r = fault("copy.thread", EAGAIN) ? EAGAIN
						 : thread_start(&threads[started], thread, NULL);
		started += r == 0;
	}
	if (started && !watched) {
		thread_cond(&over);
		watched = thread_start(&watcher, look, NULL) == 0;
	}
	errno = r;
	return started ? 0 : fail_start(e, "a thread");
}

void
copy_stop(void)
{
	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_broadcast(&work);
	pthread_cond_broadcast(&watch);
	pthread_cond_broadcast(&over);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	if (watched)
		pthread_join(watcher, NULL);
	pthread_mutex_lock(&lock);
	while (extra > 0)
		pthread_cond_wait(&over, &lock);
	pthread_mutex_unlock(&lock);
}

/* Without a descriptor of its own, a job cannot wait. */
static void
run_now(struct subtask *j)
{
	char *p = xmalloc(j->n);

	run(j, p);
	free(p);
	free(j);
}

static void
add(struct subtask *j)
{
	pthread_mutex_lock(&lock);
	TAILQ_INSERT_TAIL(&jobs, j, link);
	pthread_cond_signal(&work);
	if (++waiting > idle && !watches)
		pthread_cond_signal(&watch);
	pthread_mutex_unlock(&lock);
}

void
copy_later(const struct source *s, uint64_t offset, size_t n,
    void (*fn)(void *arg, const char *p, ssize_t n), void *arg)
{
	struct subtask *j = xcalloc(1, sizeof(*j));

	*j = (struct subtask){.source = *s, .offset = offset, .n = n, .fn = fn, .arg = arg};
	if (source_hold(&j->source))
		add(j);
	else
		run_now(j);
}

int
copy_idle(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = MAX(idle - waiting, 0);
	pthread_mutex_unlock(&lock);
	return n;
}

void
copy_call(void (*fn)(void *arg), void *arg)
{
	struct subtask *j = xcalloc(1, sizeof(*j));

	*j = (struct subtask){.source = {.kind = SOURCE_MEMORY, .fd = -1}, .call = fn, .arg = arg};
	add(j);
}

/* ---- providers ---- */

void
source_read(const struct source *s, struct range *x, uint64_t offset, size_t n)
{
	x->of = s->provider;
	x->head = part_of_head(s, offset, n);
	x->offset = offset + x->head.n - MIN(offset + x->head.n, s->head_n);
	x->n = n - x->head.n;
	x->of->ops->read(x);
}

void
range_cancel(struct range *x)
{
	TAILQ_REMOVE(&x->of->ranges, x, link);
	x->of->ops->cancel(x);
}

void
range_answer(struct range *x, const struct source *bytes, const struct err *e)
{
	TAILQ_REMOVE(&x->of->ranges, x, link);
	x->done(x, bytes, e);
}

void
provider_free(struct provider *p)
{
	static const struct err cancelled = {.no = ECANCELED};
	struct range *x;

	if (!p)
		return;
	while ((x = TAILQ_FIRST(&p->ranges))) {
		range_cancel(x);
		x->done(x, NULL, &cancelled);
	}
	p->ops->free(p);
}
