/* The socket that clients connect to. */
#define _GNU_SOURCE
#include "ninep/listener.h"
#include "proc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { OWNER_ONLY = 0177, BACKLOG = 128 };

static dev_t bound_dev;
static ino_t bound_ino; /* of the socket in the file system */

/* The address of a name in an open directory, because a path may be too long for an address. */
static int
address_of(int dir, const char *name, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (size_t)snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%s", dir,
		   name) < sizeof(a->sun_path)
		   ? 0
		   : -ENAMETOOLONG;
}

/* Has the listening process exited, although it can be connected to? Then one of its children,
 * which has not called exec yet, still holds the socket. */
static bool
is_orphan(int fd)
{
	struct ucred listener = {0}; /* pid 0: in another namespace */
	socklen_t size = sizeof(listener);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) == 0 && listener.pid > 0 &&
	       proc_has_ended(listener.pid);
}

/* Returns 0 if the socket was left behind, -EADDRINUSE if it is served, -EEXIST if it is no socket,
 * or another -errno. */
static int
check_left(int dir, const char *name, const struct sockaddr_un *a)
{
	int fd, r = -EADDRINUSE;
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 ? errno == ECONNREFUSED
								    : is_orphan(fd))
		r = 0;
	close(fd);
	return r;
}

/* Makes room for a new socket: removes one that was left behind. */
static int
remove_left(int dir, const char *name, const struct sockaddr_un *a)
{
	int r = check_left(dir, name, a);

	if (r == 0 && unlinkat(dir, name, 0) < 0)
		r = -errno;
	return r == -ENOENT ? 0 : r;
}

static int
bind_at(int dir, const char *name, const char *path, struct err *e)
{
	struct sockaddr_un a;
	struct stat st;
	mode_t before;
	bool bound;
	int fd, r;

	if (address_of(dir, name, &a) < 0)
		return fail(e, ENAMETOOLONG, "%s: the name of the socket is too long", path);
	r = remove_left(dir, name, &a);
	if (r == -EADDRINUSE)
		return fail(e, EADDRINUSE, "%s is served by a ddipfs already", path);
	if (r == -EEXIST)
		return fail(e, EEXIST, "%s exists and is not a socket: name another path", path);
	if (r < 0)
		return fail(e, -r, "%s: %s", path, strerror(-r));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	before = umask(OWNER_ONLY);
	bound = fd >= 0 && !fault("ninep.bind", ENOSPC) &&
		bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
	if (!bound || listen(fd, BACKLOG) < 0)
		r = fail_errno(e, "%s", path);
	umask(before);
	if (r == 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		bound_dev = st.st_dev;
		bound_ino = st.st_ino;
		return fd;
	}
	if (bound)
		unlinkat(dir, name, 0);
	if (fd >= 0)
		close(fd);
	return r ? r : fail(e, EIO, "%s was removed at once", path);
}

/* Opens the directory of a path; *name is the component after it. Returns -1 with *e set on
 * failure. */
static int
open_dir(const char *path, const char **name, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*name = slash + 1;
	if (fd < 0)
		fail_errno(e, "%s", dir);
	free(dir);
	return fd;
}

int
listener_check(const char *path)
{
	struct sockaddr_un a;
	struct err e = {0};
	const char *name;
	int dir = open_dir(path, &name, &e), r;

	if (dir < 0)
		return -e.no;
	r = address_of(dir, name, &a);
	if (r == 0)
		r = check_left(dir, name, &a);
	close(dir);
	return r;
}

int
listener_open(const char *path, bool waits, struct err *e)
{
	const char *name;
	int dir = open_dir(path, &name, e), fd;

	if (dir < 0)
		return -e->no;
	/* so that two daemons that start at once do not take each other for dead */
	if (flock(dir, waits ? LOCK_EX : LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		fd = fail(e, EAGAIN, "%s: its directory is locked", path);
	else
		fd = bind_at(dir, name, path, e);
	close(dir);
	return fd;
}

bool
listener_gone(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && errno == ENOENT;
}

void
listener_close(int fd, const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0 && st.st_dev == bound_dev && st.st_ino == bound_ino)
		unlink(path);
	close(fd);
}
