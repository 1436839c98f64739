/* Handles each kind of Rget. */
#define _GNU_SOURCE
#include "object/got.h"
#include "base/daemon.h"
#include "object/device.h"
#include "object/remote.h"
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void
close_pidfd(struct got *x)
{
	if (x->pidfd >= 0)
		close(x->pidfd);
	x->pidfd = -1;
}

void
got_free(struct got *x)
{
	device_free(x->device);
	x->device = NULL;
	remote_free(x->remote);
	x->remote = NULL;
	if (x->handle && agent_slot_lives(x->rank.agent, x->rank.slot))
		agent_send(x->rank.agent, Nfree, 0, x->rank.slot, 0, -1, x->handle);
	x->handle = 0;
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
	close_pidfd(x);
	buf_free(&x->head);
}

void
got_open(struct got *x)
{
	x->pidfd = fault("pull.pidfd", EMFILE) ? -1 : (int)syscall(SYS_pidfd_open, x->rank.pid, 0);
	x->pidfd_errno = errno;
}

/* For bytes in the rank's own memory. */
static int
take_live(struct got *x, uint64_t addr)
{
	char probe;

	if (x->pidfd < 0)
		return fail(&x->err, x->pidfd_errno == ESRCH ? EHOSTDOWN : x->pidfd_errno,
		    "rank %d's memory can't be read: pidfd_open: %s", x->rank.number,
		    strerror(x->pidfd_errno));
	x->source.kind = SOURCE_PROCESS;
	x->source.pid = x->rank.pid;
	x->source.pidfd = x->pidfd;
	x->source.addr = addr;
	/* not permitted (ptrace rules)? Better to find out now than in the middle of a read */
	if (x->size > x->head.n && copy_read(&x->source, x->head.n, &probe, 1) < 0)
		return fail(&x->err, EPERM,
		    "rank %d's memory can't be read from here: allow ptrace for your own processes",
		    x->rank.number);
	return 0;
}

int
got_take(struct got *x, struct msg *m)
{
	struct slice head;
	uint64_t addr;
	uint8_t kind;
	int r = wire_unpack(m, Rget, &x->err, &kind, &x->handle, &addr, &x->size, &head);

	if (r < 0)
		return r;
	buf_add(&x->head, head.p, head.n);
	x->source = (struct source){.head = x->head.p, .head_n = x->head.n, .fd = -1};
	if (kind == GET_LIVE)
		return take_live(x, addr);
	close_pidfd(x);
	if (kind == GET_READ && x->use != GOT_READ)
		return fail(
		    &x->err, EBADMSG, "rank %d's object came without its bytes", x->rank.number);
	if (kind == GET_READ)
		x->remote = remote_new(
		    x->rank.agent, x->rank.slot, x->handle, x->size - MIN(x->size, x->head.n));
	if (kind != GET_FD && kind != GET_DEVICE)
		return 0;
	if (m->fd < 0)
		return fail(
		    &x->err, EBADMSG, "rank %d's object came without its bytes", x->rank.number);
	x->on_gpu = kind == GET_DEVICE && x->use == GOT_COMBINE;
	x->gpu = (unsigned)addr;
	if (x->on_gpu)
		return 0;
	x->fd = m->fd;
	m->fd = -1;
	if (kind == GET_DEVICE) {
		x->device = device_new(
		    x->rank.agent, x->rank.slot, x->handle, (unsigned)addr, x->fd, &x->err);
		x->fd = -1;
		return -x->err.no;
	}
	x->source.kind = SOURCE_FD;
	x->source.fd = x->fd;
	return 0;
}
