/* Sources give the right bytes of heads, files and processes; nothing is read from another file
 * that has been given the same descriptor, nor from another process that has been given the same
 * pid. */
#include "source.h"
#include "check.h"
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
	CHECK(source_copy(&s, 0, p, sizeof(p)) == 9);
	CHECK_STR(p, "head,body");
	CHECK(source_copy(&s, 3, p, 4) == 4 && memcmp(p, "d,bo", 4) == 0);
	CHECK(source_copy(&s, 7, p, sizeof(p)) == 2 && memcmp(p, "dy", 2) == 0);
	CHECK(source_copy(&s, 9, p, sizeof(p)) == 0);
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
	CHECK(source_permits(&s) == 0);
	CHECK(source_copy(&s, 0, p, sizeof(p)) == sizeof(p));
	CHECK_STR(p, memory);
	CHECK(source_copy(&s, 5, p, 5) == 5 && memcmp(p, "bytes", 5) == 0);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(source_copy(&s, 0, p, sizeof(p)) == -ESRCH);
	CHECK(source_permits(&s) == -ESRCH);
	/* as if another process, here this one, had been given its pid */
	s.pid = getpid();
	CHECK(source_copy(&s, 0, p, sizeof(p)) == -ESRCH && source_permits(&s) == -ESRCH);
	close(s.pidfd);
}

static char later[3][32]; /* what jobs have read */

static void
on_read(void *arg, const char *p, ssize_t n)
{
	CHECK(n >= 0 && (size_t)n < sizeof(later[0]));
	memcpy(arg, p, n > 0 ? (size_t)n : 0);
}

/* A file that holds text. */
static int
file_of(const char *text)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);

	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static sem_t go_on, ended;

static void
wait_for_another(void *arg)
{
	while (sem_wait(&go_on) < 0)
		;
	sem_post(&ended);
}

static void
unblock(void *arg)
{
	for (int i = 0; i < *(int *)arg; i++)
		sem_post(&go_on);
}

/* However many jobs wait for one that comes after them, it is done. */
static void
test_waiting(void)
{
	static int jobs = 40; /* unblock() may still look at it at the end */

	CHECK(sem_init(&go_on, 0, 0) == 0 && sem_init(&ended, 0, 0) == 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < jobs; i++)
			copy_call(wait_for_another, NULL);
		copy_call(unblock, &jobs);
		for (int i = 0; i < jobs; i++)
			while (sem_wait(&ended) < 0)
				;
	}
}

/* Jobs read the file that they were given, whatever its descriptor's number has become meanwhile.
 * Also when there are no descriptors. */
static void
test_closed(void)
{
	struct source s = {.kind = SOURCE_FD, .fd = file_of("first")};
	int other = file_of("other");
	struct rlimit before, none;
	struct err e;

	copy_later(&s, 0, sizeof(later[0]) - 1, on_read, later[0]); /* there is no thread yet */
	CHECK(dup2(other, s.fd) == s.fd);
	copy_later(&s, 0, sizeof(later[0]) - 1, on_read, later[1]);
	close(s.fd);
	s.fd = file_of("third");
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	copy_later(&s, 1, sizeof(later[0]) - 1, on_read, later[2]);
	CHECK(dup2(other, s.fd) < 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(dup2(other, s.fd) == s.fd);
	CHECK(copy_start(&e) == 0);
	test_waiting();
	copy_stop();
	CHECK_STR(later[0], "first");
	CHECK_STR(later[1], "other");
	CHECK_STR(later[2], "hird");
	close(s.fd);
	close(other);
	s.fd = memfd_create("copy", MFD_CLOEXEC);
	CHECK(s.fd < other); /* no job has left a descriptor open */
	close(s.fd);
}

int
main(void)
{
	test_file();
	test_process();
	test_closed();
	return CHECK_DONE();
}
