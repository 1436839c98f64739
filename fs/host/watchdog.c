/*
 * The watchdog: a process of its own, without /dev/fuse. Only operations made through a mount raise
 * inotify events, and the daemon may not touch its own mount: killed with such a call in flight it
 * could never end. So this one does.
 *
 * Lines on standard input:
 *   dev MAJOR:MINOR   the mount is this device: nothing else is ever touched or unmounted
 *   agent PID         ends with the daemon
 *   m PATH            MODIFY        w PATH   CLOSE_WRITE
 *   c PATH            CREATE        d PATH   DELETE
 * End of file: the daemon is gone.
 */
#include "host/watchdog.h"
#include "util.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AGENT_ENDS_MS = 2000 };

static char device[32]; /* "0:53" as mountinfo writes it; "" until told */
static int agent = -1;	/* pidfd */

/* The mount's root for one batch: held longer it would keep umount from working. */
static int
open_root(const char *mountpoint)
{
	int fd = open(mountpoint, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	char dev[32];

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0) {
		snprintf(dev, sizeof(dev), "%u:%u", major(st.st_dev), minor(st.st_dev));
		if (strcmp(dev, device) == 0)
			return fd;
	}
	close(fd);
	return -1;
}

/* Errors are nobody's business here: the file may be gone by now. */
static void
touch(int root, const char *path)
{
	struct timespec t[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};

	(void)!utimensat(root, path, t, 0);
}

static void
close_write(int root, const char *path)
{
	int fd = openat(root, path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		close(fd);
}

static void
create(int root, const char *path)
{
	(void)!mknodat(root, path, S_IFREG | 0600, 0);
}

static void
remove_(int root, const char *path)
{
	(void)!unlinkat(root, path, 0);
}

static const struct {
	char letter;
	void (*fn)(int root, const char *path);
} deeds[] = {{'m', touch}, {'w', close_write}, {'c', create}, {'d', remove_}};

static void
obey(const char *mountpoint, int *root, char *line)
{
	int pid;

	if (sscanf(line, "dev %31s", device) == 1)
		return;
	if (sscanf(line, "agent %d", &pid) == 1) {
		if (agent >= 0)
			close(agent);
		agent = (int)syscall(SYS_pidfd_open, pid, 0);
		return;
	}
	if (*root < 0)
		*root = open_root(mountpoint);
	for (size_t i = 0; *root >= 0 && i < ARRAY_LEN(deeds); i++)
		if (line[0] == deeds[i].letter && line[1] == ' ')
			deeds[i].fn(*root, line + 2);
}

/* Does mountinfo have our device at this place? */
static bool
still_mounted(const char *mountpoint)
{
	struct buf b = {0};
	char *line, *save;
	bool found = false;

	if (!*device || read_file("/proc/self/mountinfo", &b) < 0)
		return false;
	for (line = strtok_r(b.p, "\n", &save); line && !found;
	     line = strtok_r(NULL, "\n", &save)) {
		char dev[32], where[4096];

		if (sscanf(line, "%*d %*d %31s %*s %4095s", dev, where) != 2)
			continue;
		mountinfo_path(where);
		found = strcmp(dev, device) == 0 && strcmp(where, mountpoint) == 0;
	}
	buf_free(&b);
	return found;
}

/* The daemon ended before it could tell the device: a mount there that is dead is its own. */
static bool
is_dead(const char *mountpoint)
{
	struct stat st;

	return stat(mountpoint, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

static void
unmount(const char *mountpoint)
{
	pid_t pid;

	if (*device ? !still_mounted(mountpoint) : !is_dead(mountpoint))
		return;
	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return;
	pid = fork();
	if (pid == 0) {
		execlp(
		    "fusermount3", "fusermount3", "-u", "-z", "-q", "--", mountpoint, (char *)NULL);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The agent ends by itself when its connection does; one that can't is killed. */
static void
end_agent(void)
{
	struct pollfd p = {agent, POLLIN, 0};

	if (agent >= 0 && poll(&p, 1, AGENT_ENDS_MS) == 0)
		syscall(SYS_pidfd_send_signal, agent, SIGKILL, NULL, 0);
}

int
watchdog_main(const char *mountpoint)
{
	struct buf in = {0};
	ssize_t n;

	note_as("ddipfs-watchdog");
	prctl(PR_SET_NAME, "ddipfs-watchdog", 0, 0, 0);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (chdir("/") < 0)
		note("chdir: %s", strerrordesc_np(errno));
	while ((n = read(0, buf_room(&in, 4096), 4096)) != 0) {
		char *end;
		int root = -1;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		in.n += (size_t)n;
		while ((end = memchr(in.p, '\n', in.n))) {
			*end = '\0';
			obey(mountpoint, &root, in.p);
			buf_drop(&in, (size_t)(end - in.p) + 1);
		}
		if (root >= 0)
			close(root);
	}
	unmount(mountpoint);
	end_agent();
	buf_free(&in);
	return 0;
}
