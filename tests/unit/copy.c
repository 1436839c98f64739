/* Sources give the right bytes of heads, files and processes; a process's memory is never read from
 * another process that has been given the same pid. */
#include "copy.h"
#include "check.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char memory[] = "live bytes";

static void
test_file(void)
{
	int fd = memfd_create("copy", 0);
	struct source s = {.kind = SOURCE_FD, .head = "head,", .head_n = 5, .fd = fd};
	char p[32] = {0};

	CHECK(write(fd, "body", 4) == 4);
	CHECK(copy_read(&s, 0, p, sizeof(p)) == 9);
	CHECK_STR(p, "head,body");
	CHECK(copy_read(&s, 3, p, 4) == 4 && memcmp(p, "d,bo", 4) == 0);
	CHECK(copy_read(&s, 7, p, sizeof(p)) == 2 && memcmp(p, "dy", 2) == 0);
	CHECK(copy_read(&s, 9, p, sizeof(p)) == 0);
	close(fd);
}

static void
test_process(void)
{
	pid_t child = fork();
	struct source s = {
	    .kind = SOURCE_PROCESS, .fd = -1, .pid = child, .addr = (uintptr_t)memory};
	char p[sizeof(memory)] = {0};

	if (child == 0) {
		pause();
		_exit(0);
	}
	s.pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	CHECK(copy_read(&s, 0, p, sizeof(p)) == sizeof(p));
	CHECK_STR(p, memory);
	CHECK(copy_read(&s, 5, p, 5) == 5 && memcmp(p, "bytes", 5) == 0);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(copy_read(&s, 0, p, sizeof(p)) == -ESRCH);
	/* as if another process, here this one, had been given its pid */
	s.pid = getpid();
	CHECK(copy_read(&s, 0, p, sizeof(p)) == -ESRCH);
	close(s.pidfd);
}

int
main(void)
{
	test_file();
	test_process();
	return CHECK_DONE();
}
