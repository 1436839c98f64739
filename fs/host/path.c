/* Follows a path component by component without ever touching a ddipfs mount. */
#include "host/path.h"
#include "proc.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* the kernel's limit: ELOOP beyond it */

/* Collects the mount points of ddipfs, each ended by NUL. */
static bool
add_mount(const struct proc_mount *m, void *arg)
{
	struct buf *mounts = arg;

	if (strcmp(m->type, "fuse.ddipfs") == 0)
		buf_add(mounts, m->where, strlen(m->where) + 1);
	return false;
}

static bool
is_mount(const struct buf *mounts, const char *path)
{
	for (size_t i = 0; i < mounts->n; i += strlen(mounts->p + i) + 1)
		if (strcmp(mounts->p + i, path) == 0)
			return true;
	return false;
}

/* Puts the target of the link at in front of rest. Returns 1 if the target is absolute, 0 if not,
 * or -errno. */
static int
follow_link(const char *at, char *rest, size_t size)
{
	char target[PATH_MAX], tail[PATH_MAX];
	ssize_t n = readlink(at, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (snprintf(tail, sizeof(tail), "%s", rest) >= (int)sizeof(tail) ||
	    snprintf(rest, size, "%s/%s", target, tail) >= (int)size)
		return -ENAMETOOLONG;
	return *target == '/' ? 1 : 0;
}

/* Moves the first component of rest into name. False: there is none, or *error is set. */
static bool
take_component(char *rest, char name[NAME_MAX + 1], int *error)
{
	size_t skip = strspn(rest, "/"), n = strcspn(rest + skip, "/");

	if (n > NAME_MAX) {
		*error = -ENAMETOOLONG;
		return false;
	}
	memcpy(name, rest + skip, n);
	name[n] = '\0';
	memmove(rest, rest + skip + n, strlen(rest + skip + n) + 1);
	return n > 0;
}

/* Returns 0, -EXDEV if the path leads into a mount, or -errno: also for a component that does not
 * exist, as stat(2) does. */
static int
follow(const struct buf *mounts, const char *path)
{
	char at[PATH_MAX] = "", rest[PATH_MAX], name[NAME_MAX + 1];
	int links = 0, r = 0;
	struct stat st;

	if (snprintf(rest, sizeof(rest), "%s", path) >= (int)sizeof(rest))
		return -ENAMETOOLONG;
	while (take_component(rest, name, &r)) {
		size_t n = strlen(at);

		if (strcmp(name, ".") == 0)
			continue;
		if (strcmp(name, "..") == 0) {
			*(strrchr(at, '/') ? strrchr(at, '/') : at) = '\0';
			continue;
		}
		if (n + strlen(name) + 2 > sizeof(at))
			return -ENAMETOOLONG;
		sprintf(at + n, "/%s", name);
		if (is_mount(mounts, at))
			return -EXDEV;
		if (lstat(at, &st) < 0)
			return -errno;
		if (!S_ISLNK(st.st_mode))
			continue;
		if (++links > LINKS_MAX)
			return -ELOOP;
		r = follow_link(at, rest, sizeof(rest));
		if (r < 0)
			return r;
		at[r ? 0 : n] = '\0';
	}
	return MIN(r, 0);
}

int
path_check_outside(const char *what, const char *path, struct err *e)
{
	struct buf mounts = {0};
	int r = proc_mounts(add_mount, &mounts);

	if (r == 0)
		r = follow(&mounts, path);
	buf_free(&mounts);
	if (r == -EXDEV)
		return fail(e, EINVAL,
		    "%s: %.200s is in a ddipfs mount, where the ranks would wait for themselves: "
		    "want a "
		    "path outside",
		    what, path);
	if (r < 0)
		return fail(e, -r, "%s: %.200s: %s", what, path, strerror(-r));
	return 0;
}
