/*
 * Tests of fs/host/ticks.c: a watchdog that takes a dead one's place is told the same, in the same
 * order. This program is the watchdog, too: it writes what it is told to the file that it takes for
 * the mount.
 */
#include "host/ticks.h"
#include "base/daemon.h"
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct daemon daemon_;

static int
be_watchdog(const char *path)
{
	int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char bytes[512];
	ssize_t n;

	while ((n = read(0, bytes, sizeof(bytes))) > 0)
		if (write(to, bytes, (size_t)n) != n)
			return 1;
	return n < 0;
}

/* What the last watchdog was told, a line for each message. */
static void
read_told(char *text, size_t size)
{
	int fd = open(daemon_.mountpoint, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, size - 1);

	close(fd);
	text[MAX(n, 0)] = '\0';
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '\0')
			text[i] = '\n';
}

/* News that comes between the death of a watchdog and the start of the next one, a second later. */
static void
test_between(void)
{
	pid_t pid;
	char told[512];

	daemon_.log_fd = STDERR_FILENO;
	CHECK(ticks_start() == 0);
	ticks_mounted(1, 2);
	ticks_path(TICK_CREATE, "group/vars/x");
	while (
	    (pid = ticks_watchdog())) { /* one that dies soon after its start is replaced later */
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		CHECK(ticks_reaped(pid));
	}
	ticks_agent(1111);
	ticks_agent(2222);
	ticks_agent_gone(1111);
	while (ticks_watchdog() == 0)
		loop_once(daemon_.loop, -1);
	while (!ticks_expects(TICK_CREATE, "group/vars/x", false))
		loop_once(daemon_.loop, -1);
	pid = ticks_watchdog();
	ticks_stop();
	waitpid(pid, NULL, 0);
	read_told(told, sizeof(told));
	CHECK_STR(told, "dev 1:2\nagent 2222\nc group/vars/x\n");
}

int
main(int argc, char **argv)
{
	char path[] = "/tmp/ticks.XXXXXX";

	if (argc == 3 && strcmp(argv[1], "--watchdog") == 0)
		return be_watchdog(argv[2]);
	signal(SIGPIPE, SIG_IGN);
	close(mkstemp(path));
	daemon_.mountpoint = path;
	daemon_.loop = loop_new();
	test_between();
	loop_free(daemon_.loop);
	unlink(path);
	return CHECK_DONE();
}
