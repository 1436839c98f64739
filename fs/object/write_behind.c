/* The loop waits for a write only if it needs its outcome or has another one. */
#include "object/write_behind.h"
#include "source.h"
#include "thread.h"
#include <errno.h>

enum { LEAST = 256 << 10 }; /* bytes that are worth another thread */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static enum { NONE, WAITS, RUNS } state; /* of the write; the lock guards it */

static struct {
	int fd;
	struct pages *pages;
	const char *p, *buffer;
	size_t n;
	uint64_t offset;
	int *failed;
} job;
static struct slice lent;

/* Call with the lock held, which it releases meanwhile. */
static void
run(void)
{
	int failed = 0;

	state = RUNS;
	pthread_mutex_unlock(&lock);
	if (!(job.pages && pages_write(job.pages, job.p, job.n, job.offset)) &&
	    pwrite_all("push.write", job.fd, job.p, job.n, job.offset) < job.n)
		failed = errno;
	pthread_mutex_lock(&lock);
	if (failed)
		*job.failed = failed;
	state = NONE;
	pthread_cond_signal(&ended);
}

static void
on_copy_thread(void *arg)
{
	pthread_mutex_lock(&lock);
	if (state == WAITS)
		run();
	pthread_mutex_unlock(&lock);
}

void
write_behind_settle(void)
{
	pthread_mutex_lock(&lock);
	if (state == WAITS) /* the copy threads have other work */
		run();
	while (state == RUNS)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
}

bool
write_behind(int fd, struct pages *pages, const char *p, size_t n, uint64_t offset, int *failed)
{
	if (n < LEAST || p < lent.p || p + n > lent.p + lent.n)
		return false;
	job.fd = fd;
	job.pages = pages;
	job.p = p;
	job.buffer = lent.p;
	job.n = n;
	job.offset = offset;
	job.failed = failed;
	pthread_mutex_lock(&lock);
	state = WAITS;
	pthread_mutex_unlock(&lock);
	copy_call(on_copy_thread, NULL);
	return true;
}

void
write_behind_lend(struct slice buffer)
{
	lent = buffer;
}

bool
write_behind_borrows(const char *buffer)
{
	bool borrows;

	pthread_mutex_lock(&lock);
	borrows = state != NONE && job.buffer == buffer;
	pthread_mutex_unlock(&lock);
	return borrows;
}
