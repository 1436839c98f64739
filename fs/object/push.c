/* Bytes that are pushed: written once, mapped by every rank of the host. That all ranks take them,
 * or none, is group/queue.c's. */
#include "object/push.h"
#include "object/write_behind.h"
#include "memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum {
	SIZE_MAX_BITS = 46,
	COPY_MAX = 4 << 20 /* bytes copied in one go: blocks the loop for a millisecond or so */
};

/* Did it fail for want of a descriptor, and are there some now that were kept? */
static bool
finds_descriptors(int fd)
{
	return fd < 0 && (errno == EMFILE || errno == ENFILE) && pages_release();
}

static int
new_memfd(const char *what, struct err *e)
{
	int fd;

	do
		fd = fault("push.memfd", EMFILE) ? -1 : memfd_create("ddipfs-push", MFD_CLOEXEC);
	while (finds_descriptors(fd));
	return fd < 0 ? fail_errno(e, "%s: memfd_create", what) : fd;
}

static int
check_size(uint64_t size, struct err *e)
{
	if (size >> SIZE_MAX_BITS)
		return fail(e, EFBIG, "an object has less than %d TiB", 1 << (SIZE_MAX_BITS - 40));
	return 0;
}

/* What is kept for later pushes is given back if this one needs it. */
static int
take_memory(uint64_t bytes, const char *what, struct err *e)
{
	int r;

	do
		r = memory_take(bytes, what, e);
	while (r < 0 && pages_release());
	return r;
}

/* Is there memory for n bytes at offset? Those that follow what was written are new, also where the
 * size was set before; else only those behind the end. */
static int
find_room(const struct push *p, uint64_t offset, size_t n, const char *what, struct err *e)
{
	uint64_t end = offset + n, old = offset == p->filled ? offset : p->size;

	if (p->pages)
		old = MAX(old, p->pages->size);
	return take_memory(end - MIN(end, old), what, e);
}

int
push_open(struct push *p, const char *what, struct err *e)
{
	*p = (struct push){.memfd = new_memfd(what, e)};
	return MIN(p->memfd, 0);
}

int
push_fd(const struct push *p)
{
	write_behind_settle();
	return p->memfd;
}

void
push_read(const struct push *p, const char *what, struct req *r)
{
	struct source own = {.kind = SOURCE_FD, .fd = p->memfd};

	if (push_settle(p, what, &r->err) < 0)
		req_done(r, -r->err.no);
	else if (r->offset >= p->size)
		req_data(r, "", 0);
	else
		req_copy(r, &own, r->offset, (size_t)MIN(p->size - r->offset, r->want));
}

int
push_settle(const struct push *p, const char *what, struct err *e)
{
	write_behind_settle();
	return p->failed ? fail(e, p->failed, "no room for all bytes of %s", what) : 0;
}

/* The memfd goes. Its memory may be used again if there is some for all of it, and if it will be
 * known that ranks have dropped it. */
static void
close_memfd(struct push *p)
{
	struct pages *had = p->pages;
	bool whole = p->filled == p->size && !p->failed, large = p->size >= PAGES_LEAST;

	if (p->memfd >= 0 && !had && large)
		had = pages_new(p->memfd, p->size);
	if (had && large && whole && !p->same_file && pages_end(had, p->size) == 0)
		pages_keep(had);
	else if (had && p->failed) /* there is too little memory */
		pages_free(had);
	else if (had)
		pages_drop(had);
	else if (p->memfd >= 0)
		close(p->memfd);
	p->memfd = -1;
	p->pages = NULL;
	p->same_file = false;
}

void
push_close(struct push *p)
{
	write_behind_settle();
	close_memfd(p);
}

/* Copies the first n bytes of the push to another memfd, which is not read or written meanwhile. */
static int
copy_to(int fd, const struct push *p, uint64_t n, const char *what, struct err *e)
{
	off_t from = 0;

	lseek(fd, 0, SEEK_SET);
	while ((uint64_t)from < n) {
		ssize_t k = fault("push.copy", ENOSPC)
				? -1
				: sendfile(fd, p->memfd, &from, (size_t)(n - (uint64_t)from));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return fail_errno(
			    e, "no room for %llu bytes of %s", (unsigned long long)n, what);
	}
	return 0;
}

/* A file that is written from its beginning on, and becomes large, gets memory of an older object
 * if there is some. */
static int
use_old(struct push *p, size_t n, uint64_t offset, const char *what, struct err *e)
{
	struct pages *old;

	if (p->pages || p->shared || offset != p->size || p->filled != p->size ||
	    p->size >= PAGES_LEAST || p->size + n < PAGES_LEAST || !(old = pages_take()))
		return 0;
	if (copy_to(old->fd, p, p->size, what, e) < 0) {
		pages_keep(old);
		return -e->no;
	}
	close(p->memfd);
	p->memfd = old->fd;
	p->pages = old;
	return 0;
}

/* What an older object has left behind `size` goes. */
static int
end_old(struct push *p, uint64_t size, const char *what, struct err *e)
{
	if (p->pages && pages_end(p->pages, size) < 0)
		return fail_errno(e, "%s: ftruncate", what);
	return 0;
}

/* The bytes that ranks map must not change: switches to a copy of the first `keep`. */
static int
unshare(struct push *p, uint64_t keep, const char *what, struct err *e)
{
	int fd;

	if (!p->shared)
		return 0;
	if (keep > COPY_MAX)
		return fail(e, EOPNOTSUPP,
		    "%s: its %llu bytes were an object and are pushed: open it again to write "
		    "another",
		    what, (unsigned long long)keep);
	fd = new_memfd(what, e);
	if (fd < 0)
		return fd;
	if (copy_to(fd, p, keep, what, e) < 0) {
		close(fd);
		return -e->no;
	}
	close_memfd(p);
	p->memfd = fd;
	p->shared = false;
	return 0;
}

ssize_t
push_write(
    struct push *p, const char *data, size_t n, uint64_t offset, const char *what, struct err *e)
{
	if (push_settle(p, what, e) < 0 || check_size(offset + n, e) < 0 ||
	    use_old(p, n, offset, what, e) < 0 || find_room(p, offset, n, what, e) < 0 ||
	    unshare(p, p->size, what, e) < 0 ||
	    (offset > p->size && end_old(p, p->size, what, e) < 0))
		return -e->no;
	if (!write_behind(p->memfd, p->pages, data, n, offset, &p->failed) &&
	    pwrite_all("push.write", p->memfd, data, n, offset) < n)
		return fail_errno(e, "no room for %zu bytes of %s", n, what);
	p->size = MAX(p->size, offset + n);
	if (offset <= p->filled)
		p->filled = MAX(p->filled, offset + n);
	return (ssize_t)n;
}

int
push_resize(struct push *p, uint64_t size, const char *what, struct err *e)
{
	write_behind_settle();
	if (size == 0)
		p->failed = 0;
	if (push_settle(p, what, e) < 0 || check_size(size, e) < 0 ||
	    take_memory(size - MIN(size, p->size), what, e) < 0 ||
	    unshare(p, MIN(size, p->size), what, e) < 0 ||
	    end_old(p, MIN(size, p->size), what, e) < 0)
		return -e->no;
	if (fault("push.size", EFBIG) || ftruncate(p->memfd, (off_t)size) < 0)
		return fail_errno(e, "%s can't have %llu bytes", what, (unsigned long long)size);
	p->size = size;
	p->filled = MIN(p->filled, size);
	return 0;
}

int
push_share(struct push *p, const char *what, struct err *e)
{
	int fd = -1;

	if (push_settle(p, what, e) < 0 || end_old(p, p->size, what, e) < 0)
		return -e->no;
	if (p->pages || p->size >= PAGES_LEAST)
		do
			fd = pages_open(p->memfd);
		while (finds_descriptors(fd));
	if (fd < 0) {
		do
			fd = fault("push.dup", EMFILE) ? -1 : fcntl(p->memfd, F_DUPFD_CLOEXEC, 0);
		while (finds_descriptors(fd));
		p->same_file = true;
	}
	if (fd < 0)
		return fail_errno(e, "%s: no descriptor is left for its bytes", what);
	p->shared = true;
	return fd;
}
