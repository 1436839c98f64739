/* Bytes for input(): the I/O thread adds them, a Python thread takes them. */
#define _GNU_SOURCE
#include "rank/rank_stdin.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	struct buf bytes;
	unsigned ends; /* ends of input not yet taken */
	bool ended;
	_Atomic uint32_t changes; /* a futex */
} in = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_stdin_lock(void)
{
	pthread_mutex_lock(&in.lock);
}

void
rank_stdin_unlock(void)
{
	pthread_mutex_unlock(&in.lock);
}

static void
changed(void)
{
	atomic_fetch_add(&in.changes, 1);
	syscall(SYS_futex, &in.changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void
rank_stdin_put(struct slice data)
{
	rank_stdin_lock();
	buf_add(&in.bytes, data.p, data.n);
	if (data.n == 0)
		in.ends++;
	rank_stdin_unlock();
	changed();
}

size_t
rank_stdin_drop(void)
{
	size_t n;

	rank_stdin_lock();
	n = in.bytes.n;
	buf_clear(&in.bytes);
	in.ends = 0;
	rank_stdin_unlock();
	return n;
}

void
rank_stdin_end(void)
{
	rank_stdin_lock();
	in.ended = true;
	rank_stdin_unlock();
	changed();
}

/* Returns 1 with bytes added to *to, 0 at the end of input, or -EAGAIN if there is nothing yet. */
static int
take(struct buf *to)
{
	int r;

	rank_stdin_lock();
	r = in.bytes.n ? 1 : in.ends || in.ended ? 0 : -EAGAIN;
	if (r == 1) {
		buf_add(to, in.bytes.p, in.bytes.n);
		buf_clear(&in.bytes);
	} else if (in.ends) {
		in.ends--;
	}
	rank_stdin_unlock();
	return r;
}

bool
rank_stdin_ready(void)
{
	bool ready;

	rank_stdin_lock();
	ready = in.bytes.n || in.ends || in.ended;
	rank_stdin_unlock();
	return ready;
}

int
rank_stdin_take(struct buf *to)
{
	for (;;) {
		uint32_t seen = atomic_load(&in.changes);
		int r = take(to);

		if (r != -EAGAIN)
			return r;
		if (syscall(SYS_futex, &in.changes, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0) < 0 &&
		    errno == EINTR)
			return -EINTR;
	}
}
