/* Tests of include/util.c and err.c: buffers, slices, files, errors. */
#include "err.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void
test_buf(void)
{
	struct buf b = {0};
	char *s;

	buf_add(&b, NULL, 0);
	CHECK(b.n == 0 && b.p[0] == '\0');
	buf_adds(&b, "abc");
	buf_addc(&b, 'd');
	buf_addf(&b, "%d%s", 42, "x");
	CHECK_STR(b.p, "abcd42x");
	buf_drop(&b, 4);
	CHECK_STR(b.p, "42x");
	buf_drop(&b, 3);
	CHECK(b.n == 0);
	for (int i = 0; i < 10000; i++)
		buf_addf(&b, "%04d", i);
	CHECK(b.n == 40000 && memcmp(b.p + 39996, "9999", 5) == 0);
	buf_clear(&b);
	CHECK_STR(b.p, "");
	buf_free(&b);
	s = buf_take(&b); /* of an empty buffer: still a string */
	CHECK_STR(s, "");
	free(s);
}

static void
test_slice(void)
{
	struct slice s = {"hello world", 5};
	char *d = slice_dup(s);

	CHECK(slice_eq(s, "hello"));
	CHECK(!slice_eq(s, "hell") && !slice_eq(s, "hello "));
	CHECK_STR(d, "hello");
	free(d);
}

static void
test_file(void)
{
	char path[] = "/tmp/ddip-unit.XXXXXX";
	struct buf b = {0};
	char big[10000];
	int fd = mkstemp(path);

	memset(big, 'x', sizeof(big));
	CHECK(write_all(fd, big, sizeof(big)) == 0);
	CHECK(read_file(path, &b) == 0);
	CHECK(b.n == sizeof(big) && memcmp(b.p, big, b.n) == 0);
	CHECK(read_file("/nonexistent", &b) == -ENOENT);
	CHECK(read_file("/", &b) == -EISDIR);
	CHECK(fd_cloexec(fd, true) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(fd_nonblock(fd, true) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
	CHECK(fd_nonblock(fd, false) == 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	CHECK(fd_cloexec(-1, true) == -EBADF);
	close(fd);
	CHECK(write_all(fd, big, 1) == -EBADF);
	unlink(path);
	buf_free(&b);
}

static void
test_err(void)
{
	struct err e = {0};
	char text[3000];

	CHECK(fail(&e, EINVAL, "size: want 1..%d", 8) == -EINVAL);
	CHECK(e.no == EINVAL);
	CHECK_STR(e.text, "size: want 1..8");
	errno = ENOENT;
	CHECK(fail_errno(&e, "open %s", "x") == -ENOENT);
	CHECK_STR(e.text, "open x: No such file or directory");
	CHECK(fail(NULL, EIO, "nobody listens") == -EIO);
	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	errno = EIO; /* no room for the reason: still a string */
	CHECK(fail_errno(&e, "%s", text) == -EIO);
	CHECK(strlen(e.text) < sizeof(e.text));
	CHECK_STR(err_name(ENOTUNIQ), "ENOTUNIQ");
	CHECK_STR(err_name(EOPNOTSUPP), "EOPNOTSUPP");
	CHECK_STR(err_name(9999), "E9999");
	CHECK_STR(err_name(-1), "E-1");
}

static void
test_debug(void)
{
	setenv("DDIP_DEBUG", "wire,cell", 1);
	CHECK(debug_on("wire") && debug_on("cell"));
	CHECK(!debug_on("wir") && !debug_on("wires") && !debug_on("all"));
	setenv("DDIP_DEBUG", "all", 1);
	CHECK(debug_on("fuse"));
	unsetenv("DDIP_DEBUG");
	CHECK(!debug_on("wire"));
}

int
main(void)
{
	uint64_t t = now_ns();

	test_buf();
	test_slice();
	test_file();
	test_err();
	test_debug();
	CHECK(now_ns() >= t && now_wall() > 1.6e9);
	return CHECK_DONE();
}
