/* The FUSE session: mounting, the INIT message, what the kernel may ask for, unmounting. */
#include "session/session.h"
#include "base/ahead.h"
#include "base/daemon.h"
#include "host/ticks.h"
#include "object/write_behind.h"
#include "proc.h"
#include "session/directory.h"
#include "session/file.h"
#include "session/lock.h"
#include "session/request.h"
#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <limits.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	MAX_WRITE = 1 << 20,
	BACKGROUND = 1024, /* background requests that the kernel may have in flight */
	PREFERRED_IO = 1 << 20,
	BATCH = 32, /* requests handled per pass of the loop */
	TIMEOUT_MARGIN_S = 15,
	EARLIER_S = 600 /* how long before the longest limit we release requests ourselves */
};

/* INIT flags that libfuse 3.14 does not name: bit - 32, in flags2 */
enum {
	DIRECT_IO_ALLOW_MMAP = 1 << 4,
	REQUEST_TIMEOUT = 1 << 10,
	TIMEOUT_OFFSET = 40,
	LONGEST_S = 65535 /* longest request timeout: its field has 16 bits */
};

static struct fuse_session *session;
static struct watch *fuse_watch, *mounts_watch;
static int mounts_fd = -1;
static char device[32];
static char *mounted_at;
static void (*on_ready)(void);
static uint64_t init_unique;
static uint32_t init_flags2;
static bool direct_mmap, shut, gone; /* gone: the kernel has unmounted us */

/* Seconds that a request may wait, safely below the limit after which the kernel ends the whole
 * mount. */
static uint64_t
longest_wait(void)
{
	struct buf b = {0};
	uint64_t max = 0;

	if (read_file("/proc/sys/fs/fuse/max_request_timeout", &b) == 0)
		max = strtoull(b.p, NULL, 10);
	buf_free(&b);
	return max > 2 * TIMEOUT_MARGIN_S ? max - TIMEOUT_MARGIN_S
	       : max			  ? max / 2
					  : LONGEST_S - EARLIER_S;
}

bool
session_direct_mmap(void)
{
	return direct_mmap;
}

struct fuse_session *
session_fuse(void)
{
	return session;
}

static void
session_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->max_write = MAX_WRITE;
	conn->max_background = BACKGROUND;
	conn->congestion_threshold = BACKGROUND;
	conn->want |= conn->capable & FUSE_CAP_ATOMIC_O_TRUNC;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
}

static ssize_t
session_read(int fd, void *p, size_t n, void *userdata)
{
	ssize_t r = fault("fuse.read", ENOMEM) ? -1 : read(fd, p, n);
	const struct fuse_in_header *h = p;
	const struct fuse_init_in *init = (const void *)(h + 1);

	if (r >= (ssize_t)(sizeof(*h) + sizeof(*init)) && h->opcode == FUSE_INIT) {
		init_unique = h->unique;
		init_flags2 = init->flags2;
	}
	return r;
}

/* Fails as the kernel does: the requester gets an error, and so do we. */
static ssize_t
fail_reply(int fd, struct iovec *iov)
{
	struct fuse_out_header h = *(struct fuse_out_header *)iov[0].iov_base;
	struct iovec error = {&h, sizeof(h)};

	/* a notification (not a reply to a request) is simply lost */
	if (h.unique) {
		h.len = sizeof(h);
		h.error = -EIO;
		(void)!writev(fd, &error, 1);
	}
	errno = ENOMEM;
	return -1;
}

/* Adds to the INIT reply what this libfuse cannot ask for: mapping of files that use direct I/O,
 * and requests that may wait for hours (a distribution's default timeout would end the whole
 * mount). */
static ssize_t
session_write(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fuse_out_header *h = iov[0].iov_base;
	bool init = init_unique && h->unique == init_unique;
	ssize_t r;

	if (init && count == 2 && h->error == 0 && iov[1].iov_len >= sizeof(struct fuse_init_out)) {
		struct fuse_init_out *out = iov[1].iov_base;
		uint16_t forever = LONGEST_S;

		out->flags |= FUSE_INIT_EXT;
		if (init_flags2 & DIRECT_IO_ALLOW_MMAP) {
			out->flags2 |= DIRECT_IO_ALLOW_MMAP;
			direct_mmap = true;
		}
		if (init_flags2 & REQUEST_TIMEOUT) {
			out->flags2 |= REQUEST_TIMEOUT;
			memcpy((char *)out + TIMEOUT_OFFSET, &forever, sizeof(forever));
		}
		init_unique = 0;
	}
	r = fault("fuse.reply", ENOMEM) ? fail_reply(fd, iov) : writev(fd, iov, count);
	if (r < 0 && init)
		die("the kernel rejected the INIT reply: %s", strerror(errno));
	return r;
}

static bool
is_our_device(const struct proc_mount *m, void *arg)
{
	return strcmp(m->device, device) == 0;
}

/* After umount -l open files live on, but for us it is the end. */
static void
on_mounts(void *arg, uint32_t events)
{
	/* by device number: the path may lead elsewhere by now */
	if (*device && proc_mounts(is_our_device, NULL) == 0) {
		gone = true;
		note("unmounted");
		loop_stop(daemon_.loop);
	}
}

/* The last mount at our path hides the others. */
static bool
take_device(const struct proc_mount *m, void *arg)
{
	if (strncmp(m->type, "fuse", 4) == 0 && strcmp(m->where, mounted_at) == 0)
		snprintf(device, sizeof(device), "%s", m->device);
	return false;
}

/* Finds our device number, which mountinfo lists with our path. */
static void
learn_device(void)
{
	unsigned ma, mi;

	proc_mounts(take_device, NULL);
	if (sscanf(device, "%u:%u", &ma, &mi) != 2)
		return;
	daemon_.device = makedev(ma, mi);
	ticks_mounted(ma, mi);
}

/* May the answer tell its client of a change? Reads, lookups and attributes say so themselves. */
static bool
may_tell(uint32_t opcode)
{
	return opcode != FUSE_READ && opcode != FUSE_LOOKUP && opcode != FUSE_GETATTR &&
	       opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET;
}

static void
on_fuse(void *arg, uint32_t events)
{
	static struct fuse_buf bufs[2]; /* one may hold bytes that are being pushed */

	for (int i = 0; i < BATCH; i++) {
		struct fuse_buf *buf = &bufs[write_behind_borrows(bufs[0].mem)];
		int n = fuse_session_receive_buf(session, buf);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return;
		if (n <= 0 || fuse_session_exited(session)) {
			gone |= n == 0;
			if (n < 0)
				note("ending: /dev/fuse: %s", strerror(-n));
			loop_stop(daemon_.loop);
			return;
		}
		if (may_tell(((const struct fuse_in_header *)buf->mem)->opcode))
			ahead_expire();
		write_behind_lend((struct slice){buf->mem, buf->size});
		fuse_session_process_buf(session, buf);
		loop_end_round(daemon_.loop); /* so that ranks need not wait for the next request */
		if (on_ready && init_unique == 0 && *device) {
			void (*fn)(void) = on_ready;

			on_ready = NULL;
			fn();
		}
	}
}

/* Copies libfuse's messages to our log, line by line, because libfuse prints lines in pieces.
 * During shutdown it may complain that the mount is unmounted already; that is ignored. */
static void
on_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	static struct buf said;
	char *end;

	if (level > FUSE_LOG_WARNING || shut)
		return;
	buf_vaddf(&said, fmt, ap);
	while (said.n && (end = memchr(said.p, '\n', said.n))) {
		if (end > said.p)
			note("%.*s", (int)(end - said.p), said.p);
		buf_drop(&said, (size_t)(end - said.p) + 1);
	}
	if (said.n == 0)
		buf_free(&said);
}

void
session_on_ready(void (*fn)(void))
{
	on_ready = fn;
}

static void
session_statfs(fuse_req_t fr, fuse_ino_t ino)
{
	struct statvfs st;

	/* reports the free space for the ranks' output */
	if (statvfs(daemon_.state_dir, &st) < 0)
		st = (struct statvfs){.f_frsize = 4096};
	st.f_bsize = PREFERRED_IO;
	st.f_namemax = NAME_MAX;
	fuse_reply_statfs(fr, &st);
}

static const struct fuse_lowlevel_ops operations = {
    .init = session_init,
    .lookup = directory_lookup,
    .forget = directory_forget,
    .forget_multi = directory_forget_multi,
    .getattr = file_getattr,
    .setattr = file_setattr,
    .readlink = file_readlink,
    .mknod = directory_mknod,
    .mkdir = directory_mkdir,
    .unlink = directory_unlink,
    .rmdir = directory_rmdir,
    .symlink = directory_symlink,
    .rename = directory_rename,
    .link = directory_link,
    .open = file_open,
    .create = directory_create,
    .read = file_read,
    .write = file_write,
    .flush = file_flush,
    .fsync = file_fsync,
    .fallocate = file_fallocate,
    .release = file_release,
    .poll = file_poll,
    .opendir = directory_opendir,
    .readdir = directory_readdir,
    .releasedir = directory_releasedir,
    .statfs = session_statfs,
    .flock = lock_flock,
    .getlk = lock_get,
    .setlk = lock_set,
};

int
session_start(const struct session_options *o, struct err *e)
{
	static const struct fuse_custom_io io = {.read = session_read, .writev = session_write};
	/* other users are kept out by the kernel; if they are let in, it must check the modes */
	const char *check = strstr(o->fuse_opts, "allow_other") ? ",default_permissions" : "";
	char *opts = xasprintf(
	    "-ofsname=ddipfs,subtype=ddipfs%s%s%s", check, *o->fuse_opts ? "," : "", o->fuse_opts);
	char *argv[] = {xstrdup("ddipfs"), opts, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	int r = 0;

	fuse_set_log_func(on_log);
	session = fuse_session_new(&args, &operations, sizeof(operations), NULL);
	fuse_opt_free_args(&args);
	if (!session)
		r = fail(e, EINVAL, "FUSE does not take these options: %s", o->fuse_opts);
	else if (fuse_session_mount(session, o->mountpoint) < 0)
		r = fail(e, EPERM,
		    "cannot mount at %s (see the line above); ddipfs -s SOCKET serves the same "
		    "files",
		    o->mountpoint);
	free(argv[0]);
	free(opts);
	if (r < 0)
		return r;
	fuse_session_custom_io(session, &io, fuse_session_fd(session));
	fd_nonblock(fuse_session_fd(session), true);
	mounted_at = xstrdup(o->mountpoint);
	req_on_wake(file_wake_pollers);
	request_longest(longest_wait());
	learn_device();
	if (!*device) {
		fuse_session_unmount(session);
		return fail(
		    e, EIO, "%s is mounted, but not found in /proc/self/mountinfo", o->mountpoint);
	}
	fuse_watch = loop_fd(daemon_.loop, fuse_session_fd(session), EPOLLIN, on_fuse, NULL);
	mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (mounts_fd >= 0)
		mounts_watch =
		    loop_fd(daemon_.loop, mounts_fd, EPOLLPRI | EPOLLERR, on_mounts, NULL);
	return 0;
}

void
session_shut(void)
{
	loop_fd_del(mounts_watch);
	loop_fd_del(fuse_watch);
	mounts_watch = fuse_watch = NULL;
	if (mounts_fd >= 0)
		close(mounts_fd);
	mounts_fd = -1;
	shut = true;
	/* libfuse unmounts by path, and another mount may be there by now */
	if (!gone)
		fuse_session_unmount(session);
}

void
session_stop(void)
{
	request_fini();
	directory_fini();
	if (session)
		fuse_session_destroy(session);
	session = NULL;
	free(mounted_at);
}
