/* Reads in order are read ahead, and give the right bytes whatever their size; what was copied
 * before a change that a client can know of, or long ago, is not used; a reader may leave at any
 * time. */
#include "base/ahead.h"
#include "check.h"
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = (5 << 20) + 3 * PAGE + 77, PIECE = 1 << 20, HEAD = 10 };

static const char head[] = "0123456789";
static char *memory; /* of this process, which is read as another would be */

static struct answer {
	char p[PIECE];
	ssize_t n;
	sem_t done;
} answer;

static struct source
live(void)
{
	return (struct source){.kind = SOURCE_PROCESS,
	    .head = head,
	    .head_n = HEAD,
	    .size = SIZE + HEAD,
	    .fd = -1,
	    .pid = getpid(),
	    .pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0),
	    .addr = (uintptr_t)memory};
}

static void
on_read(void *arg, const char *p, ssize_t n)
{
	answer.n = n;
	if (n > 0)
		memcpy(answer.p, p, (size_t)n);
	sem_post(&answer.done);
}

static ssize_t
read_at(struct ahead **a, const struct source *s, uint64_t offset, size_t n)
{
	ahead_read(a, s, offset, n, on_read, NULL);
	while (sem_wait(&answer.done) < 0)
		;
	return answer.n;
}

static bool
is_right(uint64_t offset)
{
	for (ssize_t i = 0; i < answer.n; i++) {
		uint64_t at = offset + (uint64_t)i;

		if (answer.p[i] != (at < HEAD ? head[at] : memory[at - HEAD]))
			return false;
	}
	return true;
}

static void
test_sizes(void)
{
	static const size_t sizes[] = {PIECE, 64 << 10, 100000, PIECE - 1, 3333};
	struct source s = live();

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct ahead *a = NULL;
		uint64_t offset = 0;

		while (offset < s.size) {
			size_t n = (size_t)MIN(s.size - offset, sizes[i]);

			CHECK(read_at(&a, &s, offset, n) == (ssize_t)n && is_right(offset));
			offset += n;
		}
		ahead_free(a);
	}
	close(s.pidfd);
}

/* Reads four pieces in order, so that the fifth is being copied or has been. */
static void
read_four(struct ahead **a, const struct source *s)
{
	for (uint64_t i = 0; i < 4; i++)
		CHECK(read_at(a, s, i * PIECE, PIECE) == PIECE);
}

static void
test_change(void)
{
	const struct timespec long_ago = {.tv_nsec = 20000000};
	struct source s = live();

	for (int i = 0; i < 50; i++) {
		struct ahead *a = NULL;

		read_four(&a, &s);
		memory[4 * PIECE - HEAD]++;
		if (i % 2)
			ahead_expire();
		else
			nanosleep(&long_ago, NULL);
		CHECK(read_at(&a, &s, 4 * PIECE, PIECE) == PIECE && is_right(4 * PIECE));
		ahead_free(a);
	}
	close(s.pidfd);
}

/* Pieces are used: some change, of which nobody could know, is not seen. But of a reader that
 * begins anew no byte is older than one before it. */
static void
test_used(void)
{
	enum { LAST = 2 * PIECE };
	struct source s = live();
	struct ahead *a = NULL;
	int old = 0;

	for (int i = 0; i < 1000 && old == 0; i++) {
		struct ahead *b = NULL;

		read_four(&b, &s);
		memory[4 * PIECE - HEAD]++;
		CHECK(read_at(&b, &s, 4 * PIECE, PIECE) == PIECE);
		old += answer.p[0] != memory[4 * PIECE - HEAD];
		ahead_free(b);
	}
	CHECK(old > 0);
	s.size = LAST + PIECE;
	for (int i = 0; i < 1000; i++) {
		char first;

		memory[0]++;
		memory[LAST - HEAD] = memory[0];
		CHECK(read_at(&a, &s, 0, PIECE) == PIECE);
		first = answer.p[HEAD];
		CHECK(first == memory[0]);
		CHECK(read_at(&a, &s, PIECE, PIECE) == PIECE);
		CHECK(read_at(&a, &s, LAST, PIECE) == PIECE);
		CHECK(answer.p[0] == first);
	}
	ahead_free(a);
	close(s.pidfd);
}

static void
test_left(void)
{
	enum { MANY = 80 };
	struct ahead *many[MANY] = {0};
	struct source s = live();

	for (int i = 0; i < 50; i++) {
		struct ahead *a = NULL;

		read_four(&a, &s);
		ahead_read(&a, &s, 4 * PIECE, PIECE, on_read, NULL);
		ahead_free(a);
		while (sem_wait(&answer.done) < 0)
			;
		CHECK(answer.n == PIECE && is_right(4 * PIECE));
	}
	/* more than may have pieces */
	for (int i = 0; i < MANY; i++)
		read_four(&many[i], &s);
	for (int i = 0; i < MANY; i++) {
		CHECK(read_at(&many[i], &s, 4 * PIECE, PIECE) == PIECE && is_right(4 * PIECE));
		ahead_free(many[i]);
	}
	close(s.pidfd);
}

/* What can't be read ahead fails when it is read, not before. */
static void
test_unreadable(void)
{
	struct source s = live();
	struct ahead *a = NULL;

	CHECK(mprotect(memory + 4 * PIECE, PIECE, PROT_NONE) == 0);
	read_four(&a, &s);
	CHECK(read_at(&a, &s, 4 * PIECE, HEAD) == HEAD && is_right(4 * PIECE));
	CHECK(read_at(&a, &s, 4 * PIECE + HEAD, PAGE) == -EFAULT);
	CHECK(mprotect(memory + 4 * PIECE, PIECE, PROT_READ | PROT_WRITE) == 0);
	CHECK(read_at(&a, &s, 4 * PIECE + HEAD, PAGE) == PAGE && is_right(4 * PIECE + HEAD));
	ahead_free(a);
	close(s.pidfd);
}

static sem_t began, go;

static void
on_read_slowly(void *arg, const char *p, ssize_t n)
{
	sem_post(&began);
	while (sem_wait(&go) < 0)
		;
}

/* A reader that comes while another one is told that its piece can't be read is answered, too. */
static void
test_two_readers(void)
{
	enum { HALF = PIECE / 2, LAST = 4 * PIECE };
	struct source s = live();

	sem_init(&began, 0, 0);
	sem_init(&go, 0, 0);
	CHECK(mprotect(memory + LAST + HALF / 2, HALF, PROT_NONE) == 0);
	for (int i = 0; i < 100; i++) {
		struct ahead *a = NULL;

		read_four(&a, &s);
		ahead_read(&a, &s, LAST, HALF, on_read_slowly, NULL);
		while (sem_wait(&began) < 0)
			;
		ahead_read(&a, &s, LAST + HALF, HALF, on_read, NULL);
		sem_post(&go);
		while (sem_wait(&answer.done) < 0)
			;
		CHECK(answer.n == -EFAULT);
		ahead_free(a);
	}
	CHECK(mprotect(memory + LAST + HALF / 2, HALF, PROT_READ | PROT_WRITE) == 0);
	close(s.pidfd);
}

static sem_t unused;

static ssize_t
make(struct maker *m, uint64_t offset, char *p, size_t n)
{
	CHECK(atomic_load(&m->users) > 0);
	memcpy(p, memory + offset, n);
	return (ssize_t)n;
}

static void
on_unused(struct maker *m)
{
	sem_post(&unused);
}

/* What is made when it is read is read ahead, too, and whoever makes it must stay until that has
 * ended. */
static void
test_maker(void)
{
	sem_init(&unused, 0, 0);
	for (int i = 0; i < 50; i++) {
		struct maker m = {.make = make, .unused = on_unused, .users = 1};
		struct source s = live();
		struct ahead *a = NULL;

		close(s.pidfd);
		s.kind = SOURCE_MAKER;
		s.pidfd = -1;
		s.maker = &m;
		read_four(&a, &s);
		CHECK(is_right(3 * PIECE));
		ahead_free(a);
		if (!maker_leave(&m))
			while (sem_wait(&unused) < 0)
				;
		CHECK(atomic_load(&m.users) == 0);
	}
}

int
main(void)
{
	struct err e;
	int last;

	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (int i = 0; i < SIZE; i++)
		memory[i] = (char)(i * 31 + i / 4001);
	sem_init(&answer.done, 0, 0);
	last = dup(0);
	close(last);
	CHECK(copy_start(&e) == 0);
	test_sizes();
	test_change();
	test_used();
	test_left();
	test_unreadable();
	test_two_readers();
	test_maker();
	copy_stop();
	CHECK(dup(0) == last); /* no copy has left a descriptor open */
	munmap(memory, SIZE);
	return CHECK_DONE();
}
