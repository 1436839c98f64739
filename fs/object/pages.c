#include "object/pages.h"
#include "base/daemon.h"
#include "loop.h"
#include "memory.h"
#include "source.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif

enum {
	KEPT_S = 5,
	SHARE = 4,	       /* at most a quarter of the memory that is available is kept, */
	PLENTY_MIB = 1 << 10,  /* and nothing if less than that is */
	LARGEST_MIB = 2 << 10, /* a memfd with more takes long to cut to another size */
	MOST = 32,	       /* memfds: each is a descriptor */
	LOOK_MS = 50	       /* a rank fills some 100 MiB meanwhile */
};

static TAILQ_HEAD(list, pages) kept = TAILQ_HEAD_INITIALIZER(kept); /* the oldest first */
static uint64_t kept_bytes;
static unsigned kept_count;
static struct timer *look;
static bool no_leases; /* on this kernel: nobody knows who has a memfd */

static uint64_t
page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t
whole_pages(uint64_t size)
{
	return (size + page_size() - 1) & ~(page_size() - 1);
}

static void
unmap(struct pages *p)
{
	if (p->map)
		munmap(p->map, whole_pages(p->size));
	p->map = NULL;
	p->ready = 0;
}

void
pages_free(struct pages *p)
{
	unmap(p);
	close(p->fd);
	free(p);
}

/* On a copy thread: the kernel takes 100 ms to free a GiB. */
static void
free_later(void *arg)
{
	pages_free(arg);
}

void
pages_drop(struct pages *p)
{
	copy_call(free_later, p);
}

static struct pages *
remove_kept(struct pages *p)
{
	TAILQ_REMOVE(&kept, p, link);
	kept_bytes -= p->size;
	kept_count--;
	return p;
}

bool
pages_release(void)
{
	if (TAILQ_EMPTY(&kept))
		return false;
	pages_free(remove_kept(TAILQ_FIRST(&kept)));
	return true;
}

/* Drops what is old, or too much: ranks, too, may want the memory. */
static void
on_look(void *arg)
{
	struct pages *p = TAILQ_FIRST(&kept);
	uint64_t there = p ? memory_available("") : 0;
	uint64_t most = there < (uint64_t)PLENTY_MIB << 20 ? 0 : there / SHARE;

	while ((p = TAILQ_FIRST(&kept)) &&
	       (p->until <= now_ns() || kept_count > MOST || kept_bytes > most))
		pages_drop(remove_kept(p));
	look = p ? loop_timer(daemon_.loop, LOOK_MS, on_look, NULL) : NULL;
}

/* ---- who else has it ---- */

static void
ignore(int signo)
{
}

/* The lease is given back at once. If a process opens the memfd meanwhile, the kernel signals. */
static bool
is_ours_alone(const struct pages *p)
{
	static bool prepared;
	struct sigaction sa = {.sa_handler = ignore, .sa_flags = SA_RESTART};

	if (!prepared)
		sigaction(SIGIO, &sa, NULL);
	prepared = true;
	if (fcntl(p->fd, F_SETLEASE, F_WRLCK) < 0) {
		no_leases = errno != EAGAIN;
		return false;
	}
	fcntl(p->fd, F_SETLEASE, F_UNLCK);
	return true;
}

int
pages_open(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fault("pages.open", EMFILE) ? -1 : open(path, O_RDWR | O_CLOEXEC);
}

/* ---- kept ---- */

struct pages *
pages_take(void)
{
	struct pages *p;

	/* the last one has the size of the next, perhaps */
	TAILQ_FOREACH_REVERSE (p, &kept, list, link)
		if (is_ours_alone(p))
			break;
	if (!p)
		return NULL;
	remove_kept(p);
	if (!p->map) {
		p->map =
		    mmap(NULL, whole_pages(p->size), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
		if (p->map == MAP_FAILED)
			p->map = NULL;
	}
	return p;
}

struct pages *
pages_new(int fd, uint64_t size)
{
	struct pages *p;
	int own = pages_open(fd); /* memfd_create's own open file is not counted for a lease */

	if (own < 0)
		return NULL;
	close(fd);
	p = xcalloc(1, sizeof(*p));
	*p = (struct pages){.fd = own, .size = size};
	return p;
}

void
pages_keep(struct pages *p)
{
	p->until = now_ns() + KEPT_S * NS_PER_S;
	TAILQ_INSERT_TAIL(&kept, p, link);
	kept_bytes += p->size;
	kept_count++;
	if (no_leases || p->size > (uint64_t)LARGEST_MIB << 20)
		pages_drop(remove_kept(p));
	loop_timer_del(look);
	on_look(NULL);
}

int
pages_end(struct pages *p, uint64_t size)
{
	uint64_t had = whole_pages(p->size), has = whole_pages(size);

	if (has > had)
		unmap(p); /* it is mapped anew when it is used again */
	else if (p->map && has < had)
		munmap(p->map + has, had - has);
	p->size = size;
	p->ready = MIN(p->ready, size);
	return ftruncate(p->fd, (off_t)size);
}

bool
pages_write(struct pages *p, const char *data, size_t n, uint64_t offset)
{
	uint64_t end = offset + n, from = p->ready & ~(page_size() - 1);

	if (!p->map || end > p->size)
		return false;
	if (end > p->ready && madvise(p->map + from, end - from, MADV_POPULATE_WRITE) < 0)
		return false;
	p->ready = MAX(p->ready, end);
	memcpy(p->map + offset, data, n);
	return true;
}
