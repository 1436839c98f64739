#include "base/log.h"
#include "base/daemon.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_MAX = 4 << 20, CHECK_MS = 10000 };

static int own = -1;

static int
open_file(const char *name, int flags)
{
	char *path = xasprintf("%s/%s", daemon_.state_dir, name);
	int fd = open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 && flags & O_APPEND)
		die("%s: %s", path, strerror(errno));
	if (fd < 0)
		note("%s: %s", path, strerror(errno));
	free(path);
	return fd;
}

/* Those who write it keep their descriptors, and append: it is emptied in place. A line that is
 * written between the copy and that is lost. */
static void
empty(void)
{
	int old = open_file("ddipfs.log.1", O_WRONLY | O_TRUNC);
	off_t at = 0;

	while (old >= 0 && sendfile(old, own, &at, LOG_MAX) > 0)
		;
	if (old >= 0)
		close(old);
	if (ftruncate(own, 0) < 0)
		note("ddipfs.log: %s", strerror(errno));
}

static void
check(void *arg)
{
	struct stat st;

	if (fstat(own, &st) == 0 && st.st_size > LOG_MAX)
		empty();
	loop_timer(daemon_.loop, CHECK_MS, check, NULL);
}

int
log_open(void)
{
	own = open_file("ddipfs.log", O_RDWR | O_APPEND);
	loop_timer(daemon_.loop, CHECK_MS, check, NULL);
	return own;
}
