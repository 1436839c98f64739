/* One FUSE call: answering it now or later, signals of its client, and the session that brings
 * calls. */
#include "session/request.h"
#include "base/copy.h"
#include "base/daemon.h"
#include "group/group.h"
#include "group/journal.h"
#include "host/ticks.h"
#include "session/directory.h"
#include "session/session.h"
#include "tree/event_file.h"
#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	MAX_WRITE = 1 << 20,
	BACKGROUND = 1024,
	INLINE_COPY = 32 << 10,
	LOOK_MS = 50,
	BATCH = 32,
	TIMEOUT_MARGIN_S = 15
};

/* INIT flags that libfuse 3.14 has no names for: bit - 32 in flags2 */
enum {
	DIRECT_IO_ALLOW_MMAP = 1 << 4,
	REQUEST_TIMEOUT = 1 << 10,
	TIMEOUT_OFFSET = 40,
	LONGEST = 65535
};

static struct fuse_session *session;
static struct watch *fuse_watch, *mounts_watch;
static int mounts_fd = -1;
static char device[32];
static char *mounted_at;
static void (*on_ready)(void);
static TAILQ_HEAD(, request) parked = TAILQ_HEAD_INITIALIZER(parked);
static struct timer *look_timer, *age_timer;
static uint64_t longest; /* seconds that a request may be parked */
static uint64_t init_unique;
static uint32_t init_flags2;
static bool direct_mmap, shut, gone; /* gone: the kernel has unmounted us */

/* ---- calls ---- */

struct node *
request_node(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? tree_root() : (struct node *)(uintptr_t)ino;
}

bool
request_by_watchdog(fuse_req_t fr)
{
	return fuse_req_ctx(fr)->pid == ticks_watchdog();
}

void
request_show(fuse_req_t fr, const char *op, const struct node *n, const char *name)
{
	struct buf b = {0};

	if (!live_tracing() || request_by_watchdog(fr) || n->row->ops == &live_trace_ops)
		return;
	tree_path(n, &b);
	live_trace("fuse %s %s%s%s pid=%d", op, b.n ? b.p : "/", name ? " " : "", name ? name : "",
	    (int)fuse_req_ctx(fr)->pid);
	buf_free(&b);
}

/* A failure with a text goes to the group's `error`. */
void
request_fail(fuse_req_t fr, const struct node *n, const char *name, int result, const struct err *e)
{
	struct buf b = {0};

	if (e && e->text[0] && n->at.g) {
		tree_path(n, &b);
		if (name)
			buf_addf(&b, "/%s", name);
		group_fail(n->at.g, e, b.p);
		buf_free(&b);
	}
	fuse_reply_err(fr, -result);
}

struct request *
request_new(fuse_req_t fr, enum request_kind kind)
{
	struct request *c = xcalloc(1, sizeof(*c));

	c->fr = fr;
	c->kind = kind;
	c->tid = fuse_req_ctx(fr)->pid;
	return c;
}

static void
unpark(struct request *c)
{
	if (!c->parked)
		return;
	fuse_req_interrupt_func(c->fr, NULL, NULL);
	TAILQ_REMOVE(&parked, c, link);
	c->parked = false;
}

void
req_done(struct req *r, int result)
{
	struct request *c = (struct request *)r;
	struct node *n = r->file ? r->file->node : NULL;

	unpark(c);
	if (result < 0 && r->err.text[0] && n && n->at.g) {
		struct buf b = {0};

		tree_path(n, &b);
		group_fail(n->at.g, &r->err, b.p);
		buf_free(&b);
	}
	if (c->kind == REQUEST_OPEN || c->kind == REQUEST_CREATE)
		request_opened(c, result);
	else if (c->kind == REQUEST_LOOKUP)
		directory_looked_up(c, result);
	else
		fuse_reply_err(c->fr, -result);
	free(c);
}

void
req_data(struct req *r, const void *p, size_t n)
{
	struct request *c = (struct request *)r;

	unpark(c);
	fuse_reply_buf(c->fr, p, n);
	free(c);
}

static void
copied(void *arg, const char *p, ssize_t n)
{
	fuse_req_t fr = arg;

	if (n < 0)
		fuse_reply_err(fr, n == -ESRCH ? EHOSTDOWN : (int)-n);
	else
		fuse_reply_buf(fr, p, (size_t)n);
}

void
req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	struct request *c = (struct request *)r;
	fuse_req_t fr = c->fr;

	unpark(c);
	if (n <= INLINE_COPY) {
		char p[INLINE_COPY];

		copied(fr, p, copy_read(s, offset, p, n));
	} else {
		copy_later(s, offset, n, copied, fr);
	}
	free(c);
}

/* ---- signals ---- */

/* A number of /proc/PID/status, by its key; base 16 for signal sets. False: no such process. */
static bool
status_field(pid_t pid, const char *key, int base, unsigned long long *v)
{
	char path[32];
	struct buf b = {0};
	const char *line;
	bool ok;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	ok = read_file(path, &b) == 0 && (line = strstr(b.p, key));
	if (ok)
		*v = strtoull(line + strlen(key), NULL, base);
	buf_free(&b);
	return ok;
}

pid_t
req_process(const struct req *r)
{
	const struct request *c = (const struct request *)r;
	unsigned long long tgid;

	if (c->tid == 0)
		return 0;
	return status_field(c->tid, "\nTgid:", 10, &tgid) ? (pid_t)tgid : c->tid;
}

static unsigned long long
pending_signals(pid_t tid)
{
	unsigned long long own = 0, all = 0;

	status_field(tid, "\nSigPnd:", 16, &own);
	status_field(tid, "\nShdPnd:", 16, &all);
	return own | all;
}

#define BIT(signo) (1ull << ((signo)-1))

static const unsigned long long stop_signals =
    BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGHUP) | BIT(SIGQUIT) | BIT(SIGKILL);
static const unsigned long long pause_signals =
    BIT(SIGTSTP) | BIT(SIGSTOP) | BIT(SIGTTIN) | BIT(SIGTTOU);

bool
req_exiting(const struct req *r, bool *killed)
{
	const struct request *c = (const struct request *)r;
	unsigned long long fds = 1;

	*killed = false;
	if (c->tid == 0 || !status_field(c->tid, "\nFDSize:", 10, &fds) || fds != 0)
		return false;
	*killed = (pending_signals(c->tid) & (BIT(SIGKILL) | BIT(SIGINT) | BIT(SIGTERM))) != 0;
	return true;
}

/* What its client's signal means for a parked call; a signal that means nothing leaves it parked.
 */
static void
look_at(struct request *c)
{
	unsigned long long set = c->tid ? pending_signals(c->tid) : stop_signals, dummy;
	bool lives = c->tid == 0 || status_field(c->tid, "\nTgid:", 10, &dummy);

	c->told = c->kind == REQUEST_READ || !lives || (set & (stop_signals | pause_signals));
	if (c->kind == REQUEST_READ || !lives || (set & stop_signals))
		c->on_interrupt ? c->on_interrupt(&c->r, STOP_WORK) : req_done(&c->r, -EINTR);
	else if (set & pause_signals)
		c->on_interrupt ? c->on_interrupt(&c->r, LET_GO) : req_done(&c->r, -EINTR);
}

/* The kernel tells of one signal only: after one that meant nothing we look again ourselves. */
static void
look(void *arg)
{
	struct request *c, *next;
	bool more = false;

	look_timer = NULL;
	for (c = TAILQ_FIRST(&parked); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->interrupted && !c->told) {
			more = true;
			look_at(c);
		}
	}
	if (more)
		look_timer = loop_timer(daemon_.loop, LOOK_MS, look, NULL);
}

static void
on_interrupt(fuse_req_t fr, void *arg)
{
	struct request *c = arg;

	/* not here: libfuse is in the middle of it */
	c->interrupted = true;
	loop_timer_del(look_timer);
	look_timer = loop_timer(daemon_.loop, 0, look, NULL);
}

/* Seconds that a request may wait before the kernel ends the whole mount for it. */
static uint64_t
longest_wait(void)
{
	struct buf b = {0};
	uint64_t max = 0;

	if (read_file("/proc/sys/fs/fuse/max_request_timeout", &b) == 0)
		max = strtoull(b.p, NULL, 10);
	buf_free(&b);
	return max > 2 * TIMEOUT_MARGIN_S ? max - TIMEOUT_MARGIN_S : max ? max / 2 : LONGEST - 600;
}

/* Lets go of who has waited too long: a writer as after Ctrl-Z, a reader with EINTR. */
static void
let_go_of_old(void *arg)
{
	struct request *c, *next;

	age_timer = NULL;
	for (c = TAILQ_FIRST(&parked); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (now_ns() - c->since < longest * 1000000000u)
			continue;
		note("a request waited %llu s: let go before the kernel's limit",
		    (unsigned long long)longest);
		c->on_interrupt ? c->on_interrupt(&c->r, LET_GO) : req_done(&c->r, -EINTR);
	}
	if (!TAILQ_EMPTY(&parked))
		age_timer = loop_timer(daemon_.loop, longest * 250, let_go_of_old, NULL);
}

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	struct request *c = (struct request *)r;

	c->on_interrupt = fn;
	if (c->parked)
		return PARKED;
	c->parked = true;
	c->since = now_ns();
	if (!age_timer)
		age_timer = loop_timer(daemon_.loop, longest * 250, let_go_of_old, NULL);
	TAILQ_INSERT_TAIL(&parked, c, link);
	fuse_req_interrupt_func(c->fr, on_interrupt, c);
	return PARKED;
}

/* ---- the session ---- */

bool
request_direct_mmap(void)
{
	return direct_mmap;
}

void
request_init(void *userdata, struct fuse_conn_info *conn)
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

/* As the kernel does it: who asked gets an error, and so do we. */
static ssize_t
fail_reply(int fd, struct iovec *iov)
{
	struct fuse_out_header h = *(struct fuse_out_header *)iov[0].iov_base;
	struct iovec error = {&h, sizeof(h)};

	/* a notice (no request) just gets lost */
	if (h.unique) {
		h.len = sizeof(h);
		h.error = -EIO;
		(void)!writev(fd, &error, 1);
	}
	errno = ENOMEM;
	return -1;
}

/* The INIT reply also asks for what this libfuse can't: maps of files read directly, and requests
 * that may wait for hours (a distribution's timeout would end the whole mount). */
static ssize_t
session_write(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fuse_out_header *h = iov[0].iov_base;
	bool init = init_unique && h->unique == init_unique;
	ssize_t r;

	if (init && count == 2 && h->error == 0 && iov[1].iov_len >= sizeof(struct fuse_init_out)) {
		struct fuse_init_out *out = iov[1].iov_base;
		uint16_t forever = LONGEST;

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
		die("the kernel did not take our first answer: %s", strerrordesc_np(errno));
	return r;
}

/* Is a mount of our device still in the table? The path may lead elsewhere by now. */
static bool
still_mounted(void)
{
	struct buf b = {0};
	bool found = false;
	char *line, *save;

	if (read_file("/proc/self/mountinfo", &b) < 0)
		return true;
	for (line = strtok_r(b.p, "\n", &save); line && !found;
	     line = strtok_r(NULL, "\n", &save)) {
		char dev[32];

		found = sscanf(line, "%*d %*d %31s", dev) == 1 && strcmp(dev, device) == 0;
	}
	buf_free(&b);
	return found;
}

/* umount -l lets open files live on; for us it is the end. */
static void
on_mounts(void *arg, uint32_t events)
{
	if (*device && !still_mounted()) {
		gone = true;
		note("unmounted");
		loop_stop(daemon_.loop);
	}
}

/* Our device number, as mountinfo has it behind our path. */
static void
learn_device(void)
{
	struct buf b = {0};
	char *line, *save;
	unsigned ma, mi;

	if (read_file("/proc/self/mountinfo", &b) < 0)
		return;
	for (line = strtok_r(b.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char dev[32], where[4096];

		if (!strstr(line, " - fuse") ||
		    sscanf(line, "%*d %*d %31s %*s %4095s", dev, where) != 2)
			continue;
		mountinfo_path(where);
		if (strcmp(where, mounted_at) == 0)
			snprintf(device, sizeof(device), "%s", dev);
	}
	buf_free(&b);
	if (sscanf(device, "%u:%u", &ma, &mi) == 2)
		ticks_mounted(ma, mi);
}

static void
on_fuse(void *arg, uint32_t events)
{
	static struct fuse_buf buf;

	for (int i = 0; i < BATCH; i++) {
		int n = fuse_session_receive_buf(session, &buf);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return;
		if (n <= 0 || fuse_session_exited(session)) {
			gone |= n == 0;
			if (n < 0)
				note("ending: /dev/fuse: %s", strerrordesc_np(-n));
			loop_stop(daemon_.loop);
			return;
		}
		fuse_session_process_buf(session, &buf);
		if (on_ready && init_unique == 0 && *device) {
			void (*fn)(void) = on_ready;

			on_ready = NULL;
			fn();
		}
	}
}

/* What libfuse says goes to our log; that it can't unmount what was unmounted already is no news.
 */
static void
on_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	struct buf b = {0};

	buf_vaddf(&b, fmt, ap);
	while (b.n && b.p[b.n - 1] == '\n')
		b.p[--b.n] = '\0';
	if (level <= FUSE_LOG_WARNING && !shut)
		note("%s", b.p);
	buf_free(&b);
}

void
session_on_ready(void (*fn)(void))
{
	on_ready = fn;
}

int
session_start(const struct session_options *o, struct err *e)
{
	static const struct fuse_custom_io io = {.read = session_read, .writev = session_write};
	/* the kernel keeps everybody else out; once they are let in, somebody must look at the
	 * modes */
	const char *check = strstr(o->fuse_opts, "allow_other") ? ",default_permissions" : "";
	char *opts = xasprintf(
	    "-ofsname=ddipfs,subtype=ddipfs%s%s%s", check, *o->fuse_opts ? "," : "", o->fuse_opts);
	char *argv[] = {xstrdup("ddipfs"), opts, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	int r = 0;

	fuse_set_log_func(on_log);
	session = fuse_session_new(&args, &fuse_ops, sizeof(fuse_ops), NULL);
	fuse_opt_free_args(&args);
	if (!session)
		r = fail(e, EINVAL, "FUSE does not take these options: %s", o->fuse_opts);
	else if (fuse_session_mount(session, o->mountpoint) < 0)
		r = fail(e, EIO, "cannot mount at %s (see the line above)", o->mountpoint);
	free(argv[0]);
	free(opts);
	if (r < 0)
		return r;
	fuse_session_custom_io(session, &io, fuse_session_fd(session));
	fd_nonblock(fuse_session_fd(session), true);
	mounted_at = xstrdup(o->mountpoint);
	longest = longest_wait();
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
	struct request *c;

	loop_timer_del(look_timer);
	loop_timer_del(age_timer);
	look_timer = age_timer = NULL;
	while ((c = TAILQ_FIRST(&parked)))
		req_done(&c->r, -ENODEV);
	copy_stop();
	fuse_session_destroy(session);
	session = NULL;
	directory_fini();
	free(mounted_at);
}
