/* Keeps alive the objects whose bytes are read from outside, whatever Python does meanwhile. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct pin {
	void *obj; /* NULL: free */
	uint64_t addr, size;
	uint32_t handle;
};

static struct {
	pthread_mutex_t lock;
	struct pin *rows;
	size_t room;
	uint32_t last; /* handle */
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_pin_lock(void)
{
	pthread_mutex_lock(&pins.lock);
}

void
rank_pin_unlock(void)
{
	pthread_mutex_unlock(&pins.lock);
}

static struct pin *
find(uint32_t handle)
{
	for (size_t i = 0; i < pins.room; i++)
		if (pins.rows[i].obj && pins.rows[i].handle == handle)
			return &pins.rows[i];
	return NULL;
}

uint32_t
rank_pin_add(void *obj, uint64_t addr, uint64_t size)
{
	uint32_t handle;
	size_t i = 0;

	rank_pin_lock();
	while (i < pins.room && pins.rows[i].obj)
		i++;
	if (i == pins.room) {
		pins.room = MAX(pins.room * 2, (size_t)16);
		pins.rows = xrealloc(pins.rows, pins.room * sizeof(*pins.rows));
		memset(pins.rows + i, 0, (pins.room - i) * sizeof(*pins.rows));
	}
	handle = ++pins.last;
	pins.rows[i] = (struct pin){obj, addr, size, handle};
	rank_pin_unlock();
	return handle;
}

void *
rank_pin_drop(uint32_t handle)
{
	struct pin *p;
	void *obj;

	rank_pin_lock();
	p = find(handle);
	obj = p ? p->obj : NULL;
	if (p)
		p->obj = NULL;
	rank_pin_unlock();
	return obj;
}

/* By the kernel: memory that its owner took away (a truncated file, a freed mapping) gives EFAULT,
 * not death. */
static int
copy(void *to, uint64_t from, size_t n)
{
	size_t done = 0;

	while (done < n) {
		struct iovec local = {(char *)to + done, n - done};
		struct iovec remote = {(char *)(uintptr_t)from + done, n - done};
		ssize_t k = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

		if (k <= 0)
			return k < 0 ? -errno : -EFAULT;
		done += (size_t)k;
	}
	return 0;
}

int
rank_pin_read(uint32_t handle, uint64_t offset, void *to, size_t count, struct err *e)
{
	struct pin *p;
	int r;

	rank_pin_lock();
	p = find(handle);
	if (!p) {
		r = fail(e, ESTALE, "read: no object is kept under handle %u", handle);
	} else if (offset > p->size || count > p->size - offset) {
		r = fail(e, EINVAL, "read: %zu bytes at %llu of an object of %llu", count,
		    (unsigned long long)offset, (unsigned long long)p->size);
	} else {
		r = copy(to, p->addr + offset, count);
		if (r == -ENOSYS || r == -EPERM) { /* a sandbox forbids the call: trust the pin */
			memcpy(to, (const char *)(uintptr_t)(p->addr + offset), count);
			r = 0;
		}
		if (r < 0)
			fail(e, -r, "read: the object's memory is gone (%s)", strerror(-r));
	}
	rank_pin_unlock();
	return r;
}
