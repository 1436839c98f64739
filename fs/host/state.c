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

/* Is it a directory to which only this user has access? */
static bool
is_private(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 077);
}

/* Creates a directory, or checks an existing one. */
static int
private_dir(const char *path, struct err *e)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return fail_errno(e, "%s", path);
	if (!is_private(path))
		return fail(e, EACCES, "%s is not a directory of yours with mode 0700", path);
	return 0;
}

/* Makes a directory of sessions with a name that nobody can take first, or takes one that was made
 * so before. Returns its path, which the caller frees; NULL with e. */
static char *
fresh_dir(const char *root, struct err *e)
{
	char *prefix = xasprintf("ddipfs-%u.", (unsigned)geteuid()), *path = NULL;
	DIR *d = opendir(root);
	struct dirent *de;

	while (d && !path && (de = readdir(d))) {
		if (strncmp(de->d_name, prefix, strlen(prefix)) != 0)
			continue;
		path = xasprintf("%s/%s", root, de->d_name);
		if (!is_private(path)) {
			free(path);
			path = NULL;
		}
	}
	if (d)
		closedir(d);
	if (!path) {
		path = xasprintf("%s/%sXXXXXX", root, prefix);
		if (!mkdtemp(path)) {
			fail_errno(e, "%s", path);
			free(path);
			path = NULL;
		}
	}
	free(prefix);
	return path;
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

/* The locks stay open, and held, for the life of this process. */
static int
lock_session(const char *dir, struct err *e)
{
	char *path = xasprintf("%s/lock", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), r = 0;

	if (fd < 0 || flock(fd, LOCK_EX) < 0) /* who sweeps holds it for a moment */
		r = fail_errno(e, "%s", path);
	dir_keep(dir);
	free(path);
	/* cppcheck-suppress resourceLeak */
	return r;
}

/* Makes the directory of all sessions, which the caller frees. If it cannot be made in one place,
 * or others have taken its name, another name or the next place serves. NULL with e. */
static char *
make_base(struct err *e)
{
	const char *root;
	char *base;

	for (unsigned i = 0; (root = session_root(i)); i++) {
		base = xasprintf("%s/ddipfs-%u", root, (unsigned)geteuid());
		if (private_dir(base, e) == 0)
			return base;
		note("%s", e->text);
		free(base);
		base = fresh_dir(root, e);
		if (base) {
			note("%s serves", base);
			return base;
		}
	}
	return NULL;
}

int
state_make(const char *mountpoint, char **dir, struct err *e)
{
	char *base = make_base(e), id[64];
	time_t now = time(NULL);
	struct tm tm;
	int r;

	if (!base)
		return -e->no;
	*e = (struct err){0};
	sweep(base, mountpoint);
	localtime_r(&now, &tm);
	strftime(id, sizeof(id), "%Y%m%d-%H%M%S", &tm);
	*dir = xasprintf("%s/%s-%d", base, id, (int)getpid());
	r = mkdir(*dir, 0700) < 0 ? fail_errno(e, "%s", *dir) : 0;
	if (r == 0)
		r = lock_session(*dir, e);
	if (r == 0)
		r = write_small(*dir, "mountpoint", mountpoint, e);
	free(base);
	return r;
}
