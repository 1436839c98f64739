/* Pushed bytes can be written and truncated, and ranks that have mapped them do not see later
 * writes. */
#include "object/push.h"
#include "object/write_behind.h"
#include "source.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

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

int
main(void)
{
	struct err none;

	test_write();
	test_shared();
	test_large();
	CHECK(copy_start(&none) == 0);
	test_behind();
	copy_stop();
	return CHECK_DONE();
}
