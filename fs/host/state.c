/* The directories of a mount's spools and logs. A session is alive while its `lock` is locked. */
#include "host/state.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WALK_FDS = 16, SESSIONS_MAX = 10000 };

/* Creates a directory, or checks an existing one: only this user may have access. */
static int
private_dir(const char *path, struct err *e)
{
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return fail_errno(e, "%s", path);
	if (lstat(path, &st) < 0)
		return fail_errno(e, "%s", path);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return fail(e, EACCES,
		    "%s must be a directory of yours with mode 0700, and is not: remove it, or set "
		    "DDIP_STATE",
		    path);
	return 0;
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* Is this a dead session of this mount point, one whose lock nobody holds? */
static bool
is_dead(const char *dir, const char *mountpoint)
{
	char *lock = xasprintf("%s/lock", dir), *name = xasprintf("%s/mountpoint", dir);
	struct buf b = {0};
	int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool dead = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && read_file(name, &b) == 0 &&
		    strcmp(b.p, mountpoint) == 0;

	if (fd >= 0)
		close(fd);
	buf_free(&b);
	free(lock);
	free(name);
	return dead;
}

static int
newest_first(const void *a, const void *b)
{
	return -strcmp(*(char *const *)a, *(char *const *)b);
}

/* Removes the dead sessions of this mount point, except the latest. */
static void
sweep(const char *base, const char *mountpoint)
{
	DIR *d = opendir(base);
	char **dirs = NULL;
	struct dirent *de;
	size_t n = 0;

	while (d && n < SESSIONS_MAX && (de = readdir(d))) {
		char *dir = xasprintf("%s/%s", base, de->d_name);

		if (de->d_name[0] == '.' || !is_dead(dir, mountpoint)) {
			free(dir);
			continue;
		}
		dirs = xrealloc(dirs, (n + 1) * sizeof(*dirs));
		dirs[n++] = dir;
	}
	if (d)
		closedir(d);
	if (n)
		qsort(dirs, n, sizeof(*dirs), newest_first);
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && nftw(dirs[i], remove_entry, WALK_FDS, FTW_DEPTH | FTW_PHYS) < 0)
			note("%s: %s", dirs[i], strerror(errno));
		free(dirs[i]);
	}
	free(dirs);
}

static int
write_small(const char *dir, const char *name, const char *s, struct err *e)
{
	char *path = xasprintf("%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = fd < 0 ? -errno : write_all(fd, s, strlen(s));

	if (r < 0)
		fail(e, -r, "%s: %s", path, strerror(-r));
	if (fd >= 0)
		close(fd);
	free(path);
	return r;
}

/* The lock stays open, and held, for the life of this process. */
static int
lock_session(const char *dir, struct err *e)
{
	char *path = xasprintf("%s/lock", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), r = 0;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		r = fail_errno(e, "%s", path);
	free(path);
	/* cppcheck-suppress resourceLeak */
	return r;
}

/* Makes the directory of all sessions, which the caller frees. One that is not private is an
 * error; if none can be made in one place, the next is tried. */
static int
make_base(char **base, struct err *e)
{
	const char *root;
	int r = -ENOENT;

	*base = NULL;
	for (unsigned i = 0; r < 0 && r != -EACCES && (root = session_root(i)); i++) {
		if (*base)
			note("%s: the next place is tried", e->text);
		free(*base);
		*base = xasprintf("%s/ddipfs-%u", root, (unsigned)geteuid());
		r = private_dir(*base, e);
	}
	return r;
}

int
state_make(const char *mountpoint, char **dir, struct err *e)
{
	char *base, id[64];
	time_t now = time(NULL);
	struct tm tm;
	int r;

	r = make_base(&base, e);
	if (r == 0) {
		sweep(base, mountpoint);
		localtime_r(&now, &tm);
		strftime(id, sizeof(id), "%Y%m%d-%H%M%S", &tm);
		*dir = xasprintf("%s/%s-%d", base, id, (int)getpid());
		r = mkdir(*dir, 0700) < 0 ? fail_errno(e, "%s", *dir) : 0;
		if (r == 0)
			r = lock_session(*dir, e);
		if (r == 0)
			r = write_small(*dir, "mountpoint", mountpoint, e);
	}
	free(base);
	return r;
}
