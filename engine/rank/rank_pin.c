/* Keeps objects alive while their bytes are read from outside, whatever Python does in the
 * meantime. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct pin {
	void *obj; /* NULL: free */
	uint64_t addr, size;
	uint32_t handle;
	int device;   /* PIN_HOST: none */
	int copies;   /* in flight */
	bool dropped; /* to be freed after the last of them */
};

static struct {
	pthread_mutex_t lock;
	struct pin *rows;
	size_t room;
	uint32_t last; /* the last handle used */
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
rank_pin_add(void *obj, uint64_t addr, uint64_t size, int device)
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
	pins.rows[i] = (struct pin){
	    .obj = obj, .addr = addr, .size = size, .handle = handle, .device = device};
	rank_pin_unlock();
	return handle;
}

void *
rank_pin_drop(uint32_t handle)
{
	void *obj = NULL;
	struct pin *p;

	rank_device_forget(handle);
	rank_pin_lock();
	p = find(handle);
	if (p && p->copies) {
		p->dropped = true;
	} else if (p) {
		obj = p->obj;
		p->obj = NULL;
	}
	rank_pin_unlock();
	return obj;
}

/* Returns the pin, or NULL with *e set if it does not have these bytes. Call with the lock held. */
static struct pin *
check_range(uint32_t handle, uint64_t offset, size_t count, struct err *e)
{
	struct pin *p = find(handle);

	if (!p)
		fail(e, ESTALE, "read: no object is kept under handle %u", handle);
	else if (offset > p->size || count > p->size - offset)
		fail(e, EINVAL, "read: %zu bytes at %llu of an object of %llu", count,
		    (unsigned long long)offset, (unsigned long long)p->size);
	else
		return p;
	return NULL;
}

int
rank_pin_hold(
    uint32_t handle, uint64_t offset, size_t count, uint64_t *addr, int *device, struct err *e)
{
	struct pin *p;

	rank_pin_lock();
	p = check_range(handle, offset, count, e);
	if (p && p->device == PIN_HOST) {
		fail(e, EINVAL, "copy: the object is not on a GPU");
		p = NULL;
	}
	if (p) {
		p->copies++;
		*addr = p->addr + offset;
		*device = p->device;
	}
	rank_pin_unlock();
	return p ? 0 : -e->no;
}

void
rank_pin_release(uint32_t handle)
{
	struct buf b = {0};
	struct pin *p;
	struct msg m;
	bool last;

	rank_pin_lock();
	p = find(handle);
	last = --p->copies == 0 && p->dropped;
	rank_pin_unlock();
	if (!last)
		return;
	/* the object belongs to Python: a thread that holds the GIL releases it */
	wire_pack(&b, Nfree, 0, 0, 0, handle);
	if (wire_frame(b.p, b.n, &m, NULL) > 0)
		rank_queue_put(&rank_service, &m);
	buf_free(&b);
}

/* Has the kernel copy, so that memory that has been taken away (a truncated file, an unmapped
 * range) causes EFAULT, not a fatal signal. */
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

/* The same where a sandbox forbids that. */
static int
copy_by_file(void *to, uint64_t from, size_t n)
{
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	size_t done = 0;
	ssize_t k = 0;

	if (fd < 0) { /* nothing is left but to trust the pin */
		memcpy(to, (const char *)(uintptr_t)from, n);
		return 0;
	}
	while (done < n && (k = pread(fd, (char *)to + done, n - done, (off_t)(from + done))) > 0)
		done += (size_t)k;
	k = k < 0 && errno != EIO ? -errno : -EFAULT;
	close(fd);
	return done == n ? 0 : (int)k;
}

int
rank_pin_read(uint32_t handle, uint64_t offset, void *to, size_t count, struct err *e)
{
	struct pin *p;
	int r;

	rank_pin_lock();
	p = check_range(handle, offset, count, e);
	if (!p) {
		r = -e->no;
	} else if (p->device != PIN_HOST) {
		r = fail(e, EINVAL, "read: the object is on GPU %d", p->device);
	} else {
		r = copy(to, p->addr + offset, count);
		if (r == -ENOSYS || r == -EPERM)
			r = copy_by_file(to, p->addr + offset, count);
		if (r < 0)
			fail(e, -r, "read: the object's memory is gone (%s)", strerror(-r));
	}
	rank_pin_unlock();
	return r;
}
