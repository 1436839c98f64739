/* A process is waited for until it has had its share of the processor, but not for ever. */
#include "base/patience.h"
#include "base/daemon.h"
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHARE_MS = 50, LONGEST_MS = 500 };

struct daemon daemon_;

static uint64_t
cpu_ms(pid_t pid)
{
	struct timespec t = {0};
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) == 0)
		clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NS_PER_MS;
}

static pid_t
child(bool spins)
{
	pid_t pid = fork();

	while (pid == 0)
		if (!spins)
			pause();
	return pid;
}

static void
over(void *arg)
{
	++*(int *)arg;
	loop_stop(daemon_.loop);
}

/* Waits for a child until its patience is over. Returns how long, in ms. */
static uint64_t
wait_for(pid_t pid)
{
	uint64_t begin = now_ns();
	int count = 0;

	patience_begin(pid, over, &count);
	loop_run(daemon_.loop);
	CHECK(count == 1);
	return (now_ns() - begin) / NS_PER_MS;
}

static void
end(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void
test_share(void)
{
	pid_t pid = child(true);
	uint64_t used = cpu_ms(pid), waited = wait_for(pid);

	CHECK(waited >= SHARE_MS);
	CHECK(cpu_ms(pid) - used >= SHARE_MS || waited >= LONGEST_MS);
	end(pid);
}

/* The process uses no CPU time: possibly because others use all of it. */
static void
test_longest(void)
{
	pid_t pid = child(false);

	CHECK(wait_for(pid) >= LONGEST_MS);
	end(pid);
	CHECK(wait_for(pid) >= SHARE_MS); /* it no longer exists */
}

static void
test_end(void)
{
	int count = 0;

	patience_end(patience_begin(getpid(), over, &count));
	patience_end(NULL);
	CHECK(wait_for(getpid()) >= SHARE_MS && count == 0);
}

int
main(void)
{
	daemon_.loop = loop_new();
	test_share();
	test_longest();
	test_end();
	loop_free(daemon_.loop);
	return CHECK_DONE();
}
