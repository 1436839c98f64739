/*
 * The watchdog: a separate process without /dev/fuse. Only operations made through a mount raise
 * inotify events, and the daemon must not touch its own mount: if it were killed with such a call
 * in flight, it could never exit. So this process touches the mount.
 *
 * Commands on standard input, each ended by a NUL:
 *   dev MAJOR:MINOR   the mount is this device: nothing else is ever touched or unmounted
 *   agent PID         ends with the daemon; there may be several
 *   m PATH            MODIFY        w PATH   CLOSE_WRITE
 *   c PATH            CREATE        d PATH   DELETE
 * End of file means that the daemon is gone. A PATH leads down from the mount's root by plain names
 * and crosses no link and no other mount: whatever names user code makes up, nothing outside the
 * mount is reached.
 */
#include "host/watchdog.h"
#include "lineage.h"
#include "proc.h"
#include "signal_name.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
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

enum { NO_CLONE = 255 }; /* as an exit status, which else is the clone */

enum { AGENT_ENDS_MS = 2000, DAEMON_ENDS_MS = 2000 };

static char device[32]; /* "0:53" as mountinfo writes it; "" until known */

static struct agent {
	int pidfd;
	uint64_t lineage; /* of all that it has started */
} * agents;

static size_t agent_count;

/* See open_clone(). It keeps the file system alive, so it is closed when the mount is gone. */
static struct {
	bool tried, unmounted;
	int root;   /* -1: none */
	int mounts; /* /proc/self/mountinfo, which says when mounts change */
} held = {.root = -1, .mounts = -1};

/* Returns fd if it is on our device, else closes it: -1. */
static int
ours(int fd)
{
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

/* Opens the mount's root for one batch of commands. As long as it is held, umount fails. */
static int
open_root(const char *mountpoint)
{
	return ours(open(mountpoint, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

static int
clone_mount(const char *mountpoint)
{
	return (int)syscall(SYS_open_tree, AT_FDCWD, mountpoint,
	    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
}

/* The same for who may not: a process that shares our descriptors may, in namespaces of its own,
 * whose end the clone outlives. */
static int
clone_mount_aside(const char *mountpoint)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);
	int status = 0, fd = -1;

	if (pid == 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
			fd = clone_mount(mountpoint);
		_exit(fd >= 0 && fd < NO_CLONE ? fd : NO_CLONE);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == NO_CLONE)
		return -1;
	return WEXITSTATUS(status);
}

/* A second mount of the same file system, at no place: what is touched through it raises the same
 * events, and holds nothing that umount looks at. -1: this kernel or container allows none. */
static int
open_clone(const char *mountpoint)
{
	int fd = clone_mount(mountpoint);

	return ours(fd < 0 ? clone_mount_aside(mountpoint) : fd);
}

/* Opens path below the root and nowhere else. -1 if it does not exist or leads elsewhere. */
static int
open_below(int root, const char *path, uint64_t flags)
{
	static bool told;
	struct open_how how = {.flags = flags | O_CLOEXEC,
	    .resolve =
		RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	if (fd < 0 && (errno == ENOSYS || errno == EPERM) && !told) {
		note("openat2: %s: there will be no inotify events", strerror(errno));
		told = true;
	}
	return fd;
}

/* Opens the directory that contains path, and sets *name to the last component. -1 as in
 * open_below. */
static int
open_parent(int root, char *path, const char **name)
{
	char *slash = strrchr(path, '/');

	*name = slash ? slash + 1 : path;
	if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0)
		return -1;
	if (slash)
		*slash = '\0';
	return open_below(root, slash ? path : ".", O_PATH | O_DIRECTORY);
}

/* Errors are ignored here: the file may be gone by now. */
static void
touch(int dir, const char *name)
{
	struct timespec t[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};

	(void)!utimensat(dir, name, t, AT_SYMLINK_NOFOLLOW);
}

static void
close_write(int dir, const char *name)
{
	int fd = open_below(dir, name, O_WRONLY | O_NONBLOCK);

	if (fd >= 0)
		close(fd);
}

static void
create(int dir, const char *name)
{
	(void)!mknodat(dir, name, S_IFREG | 0600, 0);
}

static void
remove_(int dir, const char *name)
{
	(void)!unlinkat(dir, name, 0);
}

static const struct {
	char letter;
	void (*fn)(int dir, const char *name);
} commands[] = {{'m', touch}, {'w', close_write}, {'c', create}, {'d', remove_}};

static void
touch_path(int root, char letter, char *path)
{
	const char *name;
	int dir = open_parent(root, path, &name);

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(commands); i++)
		if (letter == commands[i].letter)
			commands[i].fn(dir, name);
	if (dir >= 0)
		close(dir);
}

static bool
has_ended(int pidfd, int wait_ms)
{
	struct pollfd p = {pidfd, POLLIN, 0};

	return poll(&p, 1, wait_ms) > 0;
}

/* Replaces agents that have ended. */
static void
add_agent(int pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	for (size_t i = 0; i < agent_count; i++)
		if (has_ended(agents[i].pidfd, 0)) {
			close(agents[i].pidfd);
			agents[i--] = agents[--agent_count];
		}
	if (pidfd < 0)
		return;
	agents = xrealloc(agents, (agent_count + 1) * sizeof(*agents));
	agents[agent_count++] = (struct agent){pidfd, lineage_of(pid)};
}

/* The root that the files of this batch are touched below. The first time, clones the mount. */
static int
root_of(const char *mountpoint, int *root)
{
	if (!held.tried && *device) {
		held.tried = true;
		held.mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
		held.root = held.mounts < 0 ? -1 : open_clone(mountpoint);
	}
	if (held.root >= 0 || held.unmounted)
		return held.root;
	if (*root < 0)
		*root = open_root(mountpoint);
	return *root;
}

static void
run_command(const char *mountpoint, int *root, char *line)
{
	int pid;

	if (sscanf(line, "dev %31s", device) == 1)
		return;
	if (sscanf(line, "agent %d", &pid) == 1) {
		add_agent(pid);
		return;
	}
	if (line[0] && line[1] == ' ' && root_of(mountpoint, root) >= 0)
		touch_path(root_of(mountpoint, root), line[0], line + 2);
}

static bool
is_ours(const struct proc_mount *m, void *mountpoint)
{
	return strcmp(m->device, device) == 0 && strcmp(m->where, mountpoint) == 0;
}

/* Does mountinfo list our device at this mount point? */
static bool
still_mounted(const char *mountpoint)
{
	return *device && proc_mounts(is_ours, (void *)(uintptr_t)mountpoint) > 0;
}

/* Waits for commands. Returns false if there are none yet. */
static bool
wait_for_commands(const char *mountpoint)
{
	struct pollfd p[] = {{0, POLLIN, 0}, {held.root < 0 ? -1 : held.mounts, POLLPRI, 0}};

	if (poll(p, ARRAY_LEN(p), -1) < 0)
		return false;
	if (p[1].revents && !still_mounted(mountpoint)) {
		close(held.root);
		held.root = -1;
		held.unmounted = true;
	}
	return p[0].revents != 0;
}

/* Is this the mount of a daemon that is gone? Its device number may have been reused for a mount
 * made after this one was unmounted; and before the device is known there is no other evidence. */
static bool
is_dead(const char *mountpoint)
{
	struct stat st;

	return stat(mountpoint, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

static void
unmount(const char *mountpoint, int daemon)
{
	pid_t pid;

	if (*device && !still_mounted(mountpoint))
		return;
	/* an exiting daemon may close our pipe before it closes its /dev/fuse */
	has_ended(daemon, DAEMON_ENDS_MS);
	if (!is_dead(mountpoint))
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

/* An agent exits by itself when its connection closes; one that does not is killed. */
static void
end_agents(void)
{
	uint64_t end = now_ns() + (uint64_t)AGENT_ENDS_MS * NS_PER_MS;

	for (size_t i = 0; i < agent_count; i++) {
		uint64_t now = now_ns();

		if (!has_ended(agents[i].pidfd, now < end ? (int)((end - now) / NS_PER_MS) : 0))
			syscall(SYS_pidfd_send_signal, agents[i].pidfd, SIGKILL, NULL, 0);
		lineage_end(agents[i].lineage);
	}
}

int
watchdog_main(const char *mountpoint)
{
	int daemon = (int)syscall(SYS_pidfd_open, getppid(), 0);
	struct buf in = {0};
	ssize_t n;

	note_as("ddipfs-watchdog");
	prctl(PR_SET_NAME, "ddipfs-watchdog", 0, 0, 0);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	for (const int *signo = signal_preempts; *signo; signo++)
		signal(*signo, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (chdir("/") < 0)
		note("chdir: %s", strerror(errno));
	for (;;) {
		char *end;
		int root = -1;

		if (!wait_for_commands(mountpoint))
			continue;
		n = read(0, buf_reserve(&in, 4096), 4096);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		in.n += (size_t)n;
		while ((end = memchr(in.p, '\0', in.n))) {
			run_command(mountpoint, &root, in.p);
			buf_drop(&in, (size_t)(end - in.p) + 1);
		}
		if (root >= 0)
			close(root);
	}
	unmount(mountpoint, daemon);
	end_agents();
	free(agents);
	buf_free(&in);
	return 0;
}
