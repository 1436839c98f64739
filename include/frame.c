/* Writes frames and descriptors to a socket, and reads them from it. */
#include "frame.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 256 << 10, FDS_PER_READ = 16 };

void
frame_reader_free(struct frame_reader *r)
{
	while (r->n_fds)
		if (r->fds[--r->n_fds] >= 0)
			close(r->fds[r->n_fds]);
	buf_free(&r->bytes);
}

bool
frame_is_socket(int fd)
{
	int type;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

/* Takes ownership of the descriptors of one recvmsg(2). */
static int
keep_descriptors(struct frame_reader *r, struct msghdr *mh)
{
	bool some = false;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(mh); h; h = CMSG_NXTHDR(mh, h)) {
		size_t k = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		if (r->n_fds + k > FRAME_FDS)
			return -EBADMSG;
		memcpy(r->fds + r->n_fds, CMSG_DATA(h), k * sizeof(int));
		r->n_fds += (unsigned)k;
		some |= k > 0;
	}
	/* the kernel ends a read after a descriptor, so only one was lost */
	if (mh->msg_flags & MSG_CTRUNC && !some) {
		if (r->n_fds == FRAME_FDS)
			return -EBADMSG;
		r->fds[r->n_fds++] = FRAME_FD_CUT;
	}
	return 1;
}

int
frame_receive(struct frame_reader *r, int fd, bool is_socket, bool wait)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int) * FDS_PER_READ)];
	} control;
	struct iovec iov = {buf_reserve(&r->bytes, READ_SIZE), READ_SIZE};
	struct msghdr mh = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n;

	if (fault("conn.read", ECONNRESET))
		n = -1;
	else if (is_socket)
		n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	else
		n = read(fd, iov.iov_base, iov.iov_len);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	if (n == 0)
		return 0;
	r->bytes.n += (size_t)n;
	return is_socket ? keep_descriptors(r, &mh) : 1;
}

long
frame_take(struct frame_reader *r, size_t at, struct msg *m, struct err *e)
{
	long n = wire_frame(r->bytes.p + at, r->bytes.n - at, m, e);

	if (n <= 0 || !(m->flags & FLAG_FD))
		return n;
	if (r->n_fds == 0)
		return fail(e, EBADMSG, "wire: %s came without its descriptor", wire_name(m->type));
	m->fd = r->fds[0];
	memmove(r->fds, r->fds + 1, --r->n_fds * sizeof(int));
	return n;
}

ssize_t
frame_send(int fd, bool is_socket, const char *p, size_t n, int with, bool wait)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {(char *)(uintptr_t)p, n};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t sent;

	if (with >= 0) {
		mh.msg_control = &control;
		mh.msg_controllen = sizeof(control.space);
		control.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
		    .cmsg_level = SOL_SOCKET,
		    .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.h), &with, sizeof(int));
	}
	do {
		if (fault("conn.write", ETOOMANYREFS))
			sent = -1;
		else if (is_socket)
			sent = sendmsg(fd, &mh, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
		else
			sent = write(fd, p, n);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

void
frame_no_descriptor(struct err *e)
{
	struct rlimit files = {0};

	getrlimit(RLIMIT_NOFILE, &files);
	fail(e, EMFILE,
	    "%s (process %d) has no file descriptor left: its limit is %llu; close some there, or "
	    "raise `ulimit -n`",
	    note_name(), (int)getpid(), (unsigned long long)files.rlim_cur);
}

void
frame_withdraw(struct buf *frames, size_t at, struct buf *answers)
{
	struct err e;
	struct msg m;

	wire_frame(frames->p + at, frames->n - at, &m, NULL);
	frame_no_descriptor(&e);
	switch (wire_kind(m.type)) {
	case 'T':
		wire_pack_error(answers, m.slot, m.tag, &e);
		frames->n = at;
		return;
	case 'R':
		frames->n = at;
		wire_pack_error(frames, m.slot, m.tag, &e);
		return;
	default:
		note("%s: %s", wire_name(m.type), e.text);
		wire_drop_fd(frames->p + at);
	}
}

static frame_trace_fn *trace;

void
frame_trace(frame_trace_fn *fn)
{
	trace = fn;
}

void
frame_show(bool in, const struct msg *m)
{
	struct buf b = {0};

	if (trace)
		trace(in, m);
	if (!debug_on("wire"))
		return;
	wire_print(m, &b);
	debug("wire", "%s %s", in ? "<-" : "->", b.p);
	buf_free(&b);
}

void
frame_show_all(const char *p, size_t n)
{
	struct msg m;
	long size;

	for (; (trace || debug_on("wire")) && (size = wire_frame(p, n, &m, NULL)) > 0; p += size) {
		frame_show(false, &m);
		n -= (size_t)size;
	}
}
