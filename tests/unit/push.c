/* Pushed bytes can be written and truncated, and ranks that have mapped them do not see later
 * writes. */
#define _GNU_SOURCE
#include "object/push.h"
#include "object/write_behind.h"
#include "base/daemon.h"
#include "memory.h"
#include "source.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct daemon daemon_;
static uint64_t passed_s;

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1 + passed_s)};
	return 0;
}

enum { LARGE = 5 << 20 }; /* more than is ever copied */

static void
check_bytes(int fd, const char *want, size_t n)
{
	char p[32] = {0};

	CHECK(pread(fd, p, sizeof(p), 0) == (ssize_t)n);
	CHECK(memcmp(p, want, n) == 0);
}

static void
test_write(void)
{
	struct err e = {0};
	struct push p;

	CHECK(push_open(&p, "x", &e) == 0 && p.size == 0);
	CHECK(push_write(&p, "abc", 3, 0, "x", &e) == 3 && p.size == 3);
	CHECK(push_write(&p, "Z", 1, 1, "x", &e) == 1 && p.size == 3);
	CHECK(push_write(&p, "e", 1, 4, "x", &e) == 1 && p.size == 5);
	check_bytes(p.memfd, "aZc\0e", 5);
	CHECK(push_resize(&p, 2, "x", &e) == 0 && p.size == 2);
	check_bytes(p.memfd, "aZ", 2);
	CHECK(push_write(&p, "x", 1, UINT64_C(1) << 46, "x", &e) == -EFBIG && e.text[0]);
	CHECK(push_resize(&p, UINT64_C(1) << 45, "x", &e) == -ENOSPC && p.size == 2);
	CHECK(push_write(&p, "x", 1, UINT64_C(1) << 45, "x", &e) == -ENOSPC && p.size == 2);
	CHECK(push_resize(&p, 1 << 20, "x", &e) == 0 && p.size == 1 << 20);
	push_close(&p);
	CHECK(p.memfd == -1);
	push_close(&p);
}

static void
test_shared(void)
{
	struct err e = {0};
	struct push p;
	int first, second;

	push_open(&p, "x", &e);
	push_write(&p, "one", 3, 0, "x", &e);
	first = push_share(&p, "x", &e);
	CHECK(first >= 0 && p.shared);
	check_bytes(p.memfd, "one", 3);
	CHECK(push_write(&p, " two", 4, 3, "x", &e) == 4 && !p.shared);
	second = push_share(&p, "x", &e);
	CHECK(push_resize(&p, 1, "x", &e) == 0);
	check_bytes(first, "one", 3);
	check_bytes(second, "one two", 7);
	check_bytes(p.memfd, "o", 1);
	close(first);
	close(second);
	push_close(&p);
}

/* A write that would need too large a copy is refused, unless nothing of the old bytes is kept. */
static void
test_large(void)
{
	char *bytes = calloc(1, LARGE);
	struct err e = {0};
	struct push p;
	int shared;

	push_open(&p, "x", &e);
	CHECK(push_write(&p, bytes, LARGE, 0, "x", &e) == LARGE);
	shared = push_share(&p, "x", &e);
	CHECK(push_write(&p, "y", 1, 0, "x", &e) == -EOPNOTSUPP && strstr(e.text, "open it again"));
	CHECK(p.size == LARGE && p.shared);
	CHECK(push_resize(&p, 0, "x", &e) == 0 && p.size == 0);
	CHECK(push_write(&p, "y", 1, 0, "x", &e) == 1);
	CHECK(lseek(shared, 0, SEEK_END) == LARGE);
	close(shared);
	push_close(&p);
	free(bytes);
}

/* A write-behind has the bytes that were there, in order with other writes; what fails is told by
 * the next call, and only of its own object. */
static void
test_behind(void)
{
	enum { PART = 1 << 20, PARTS = 20 };

	char *bytes[2] = {malloc(PART), malloc(PART)}, p[8] = {0};
	struct err e = {0};
	struct push a, b;
	int fd;

	push_open(&a, "x", &e);
	push_open(&b, "y", &e);
	for (int i = 0; i < PARTS; i++) {
		char *buffer = bytes[write_behind_borrows(bytes[0])];

		CHECK(!write_behind_borrows(buffer));
		memset(buffer, 'a' + i, PART);
		write_behind_lend((struct slice){buffer, PART});
		CHECK(push_write(i % 2 ? &a : &b, buffer, PART, (uint64_t)i / 2 * PART, "x", &e) ==
		      PART);
		CHECK(push_write(&a, "AB", 2, (uint64_t)i / 2 * PART + 7, "x", &e) == 2);
	}
	fd = push_share(&a, "x", &e);
	for (int i = 1; i < PARTS; i += 2) {
		CHECK(pread(fd, p, 4, i / 2 * PART + 6) == 4);
		CHECK(p[0] == 'a' + i && p[1] == 'A' && p[2] == 'B' && p[3] == 'a' + i);
		CHECK(
		    pread(push_fd(&b), p, 1, i / 2 * PART + PART - 1) == 1 && p[0] == 'a' + i - 1);
	}
	close(fd);
	close(b.memfd);
	b.memfd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	write_behind_lend((struct slice){bytes[0], PART});
	CHECK(push_write(&b, bytes[0], PART, b.size, "y", &e) == PART);
	fd = push_share(&a, "x", &e);
	CHECK(fd >= 0);
	close(fd);
	CHECK(push_share(&b, "y", &e) == -ENOSPC && strstr(e.text, "no room for all bytes of y"));
	CHECK(push_write(&b, "c", 1, 0, "y", &e) == -ENOSPC);
	push_close(&a);
	push_close(&b);
	free(bytes[0]);
	free(bytes[1]);
}

/* ---- memory that is used again ---- */

static char part[1 << 20];

/* Writes `size` bytes, all of them `c`, as a program does. Returns the descriptor for ranks. */
static int
share_object(size_t size, char c)
{
	struct err e = {0};
	struct push p;
	int fd;

	push_open(&p, "x", &e);
	memset(part, c, sizeof(part));
	write_behind_lend((struct slice){part, sizeof(part)});
	for (size_t at = 0; at < size; at += sizeof(part)) {
		size_t n = MIN(sizeof(part), size - at);

		CHECK(push_write(&p, part, n, at, "x", &e) == (ssize_t)n);
		write_behind_settle(); /* the buffer is the same */
	}
	fd = push_share(&p, "x", &e);
	CHECK(fd >= 0);
	push_close(&p);
	return fd;
}

static ino_t
inode(int fd)
{
	struct stat st = {0};

	fstat(fd, &st);
	return st.st_ino;
}

static bool
is_all(int fd, off_t size, char c)
{
	bool all = lseek(fd, 0, SEEK_END) == size;

	for (off_t at = 0; all && at < size; at += (off_t)sizeof(part)) {
		ssize_t n = pread(fd, part, sizeof(part), at);

		for (ssize_t i = 0; i < n; i++)
			all &= part[i] == c;
		all &= n > 0;
	}
	return all;
}

/* Not while somebody has it open, or mapped, as a process may that a rank has forked. */
static void
test_in_use(void)
{
	int first = share_object(LARGE, 'a'), second, third, fourth, ends[2];
	ino_t of_first = inode(first);
	void *map = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, first, 0);
	pid_t child;
	char c;

	second = share_object(LARGE, 'b');
	CHECK(inode(second) != of_first && is_all(first, LARGE, 'a'));
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	child = fork();
	if (child == 0) {
		close(first);
		close(ends[1]);
		(void)!read(ends[0], &c, 1);
		_exit(0);
	}
	close(first);
	munmap(map, LARGE);
	third = share_object(LARGE, 'c');
	CHECK(inode(third) != of_first);
	close(ends[1]);
	waitpid(child, NULL, 0);
	close(ends[0]);
	fourth = share_object(LARGE, 'd');
	CHECK(inode(fourth) == of_first && is_all(fourth, LARGE, 'd'));
	CHECK(is_all(second, LARGE, 'b') && is_all(third, LARGE, 'c'));
	close(second);
	close(third);
	close(fourth);
	CHECK(pages_release());
	while (pages_release())
		;
}

/* Nothing of the older object is seen, whatever the size of the next. */
static void
test_other_sizes(void)
{
	static const size_t sizes[] = {
	    LARGE, LARGE + 5, LARGE - 4097, 2 * LARGE + 1, LARGE + 1, LARGE + 4096, LARGE + 4096};
	ino_t first = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int fd = share_object(sizes[i], (char)('a' + i));

		if (first == 0)
			first = inode(fd);
		CHECK(inode(fd) == first && is_all(fd, (off_t)sizes[i], (char)('a' + i)));
		close(fd);
	}
	while (pages_release())
		;
}

/* Gaps are zeros, and small writes and reads see the same bytes as large ones. */
static void
test_gaps(void)
{
	struct err e = {0};
	char bytes[16];
	struct push p;

	close(share_object(2 * LARGE, 'a'));
	push_open(&p, "x", &e);
	memset(part, 'b', sizeof(part));
	for (uint64_t at = 0; at < LARGE; at += sizeof(part))
		CHECK(push_write(&p, part, sizeof(part), at, "x", &e) > 0);
	CHECK(p.pages);
	CHECK(push_write(&p, "small", 5, LARGE - 2, "x", &e) == 5);
	CHECK(push_write(&p, "end", 3, LARGE + 100, "x", &e) == 3);
	CHECK(pread(push_fd(&p), bytes, 8, LARGE - 3) == 8 && memcmp(bytes, "bsmall\0\0", 8) == 0);
	CHECK(pread(push_fd(&p), bytes, 8, LARGE + 97) == 6 && memcmp(bytes, "\0\0\0end", 6) == 0);
	CHECK(push_resize(&p, LARGE - 1, "x", &e) == 0 && push_resize(&p, LARGE + 9, "x", &e) == 0);
	CHECK(pread(push_fd(&p), bytes, 16, LARGE - 2) == 11 && memcmp(bytes, "s\0\0\0", 4) == 0);
	push_close(&p);
	while (pages_release())
		;
}

/* What has become small, or has holes, is not kept: ranks would have the same open file, or there
 * is no memory for all of it. */
static void
test_not_kept(void)
{
	struct err e = {0};
	struct push p;
	int small, large;

	close(share_object(2 * LARGE, 'a'));
	push_open(&p, "x", &e);
	memset(part, 'b', sizeof(part));
	for (uint64_t at = 0; at < LARGE; at += sizeof(part))
		CHECK(push_write(&p, part, sizeof(part), at, "x", &e) > 0);
	CHECK(p.pages && push_resize(&p, 1 << 20, "x", &e) == 0);
	small = push_share(&p, "x", &e);
	push_close(&p);
	large = share_object(2 * LARGE, 'c');
	CHECK(inode(large) != inode(small) && is_all(small, 1 << 20, 'b'));
	close(small);
	close(large);
	while (pages_release())
		;
	push_open(&p, "x", &e);
	CHECK(push_resize(&p, 2 * LARGE, "x", &e) == 0);
	CHECK(push_write(&p, "z", 1, LARGE, "x", &e) == 1);
	close(push_share(&p, "x", &e));
	push_close(&p);
	CHECK(!pages_release());
}

/* Without a descriptor for an open file of its own, nothing is kept: a lease would count the
 * ranks'. */
static void
test_no_descriptor(void)
{
	struct rlimit before, none;
	struct err e = {0};
	struct push p;
	int fd, next;

	push_open(&p, "x", &e);
	memset(part, 'a', sizeof(part));
	for (uint64_t at = 0; at < LARGE; at += sizeof(part))
		CHECK(push_write(&p, part, sizeof(part), at, "x", &e) > 0);
	fd = push_share(&p, "x", &e);
	getrlimit(RLIMIT_NOFILE, &before);
	none = (struct rlimit){0, before.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	push_close(&p);
	setrlimit(RLIMIT_NOFILE, &before);
	CHECK(!pages_release());
	next = share_object(LARGE, 'b');
	CHECK(inode(next) != inode(fd) && is_all(fd, LARGE, 'a'));
	close(fd);
	close(next);
	while (pages_release())
		;
}

/* What is kept is given back after a while, also if no other push comes. */
static void
test_expiry(void)
{
	close(share_object(LARGE, 'a'));
	loop_once(daemon_.loop, 0);
	close(share_object(LARGE, 'b'));
	passed_s += 60;
	loop_once(daemon_.loop, 0);
	CHECK(!pages_release());
}

int
main(void)
{
	struct err none;

	daemon_.loop = loop_new();
	test_write();
	test_shared();
	test_large();
	CHECK(copy_start(&none) == 0);
	test_behind();
	while (pages_release())
		;
	if (memory_available("") >> 31) {
		test_in_use();
		test_other_sizes();
		test_gaps();
		test_not_kept();
		test_no_descriptor();
		test_expiry();
	} else {
		puts("nothing is kept where less than 1 GiB is available");
	}
	copy_stop();
	loop_free(daemon_.loop);
	return CHECK_DONE();
}
