/* Handles each kind of Rget. */
#define _GNU_SOURCE
#include "object/got.h"
#include "base/daemon.h"
#include "object/remote.h"
#include "ring.h"
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
	provider_free(x->source.provider);
	x->source.provider = NULL;
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
	if (x->use == GOT_HEAD)
		return;
	x->pidfd = fault("pull.pidfd", EMFILE) ? -1 : (int)syscall(SYS_pidfd_open, x->rank.pid, 0);
	x->pidfd_errno = errno;
}

/* For bytes in the rank's own memory. */
static int
take_live(struct got *x, uint64_t addr)
{
	int r;

	if (x->pidfd < 0)
		return fail(&x->err, x->pidfd_errno == ESRCH ? EHOSTDOWN : x->pidfd_errno,
		    "rank %d's memory can't be read: pidfd_open: %s", x->rank.number,
		    strerror(x->pidfd_errno));
	x->source.kind = SOURCE_PROCESS;
	x->source.pid = x->rank.pid;
	x->source.pidfd = x->pidfd;
	x->source.addr = addr;
	/* not permitted (ptrace rules)? Better to find out now than in the middle of a read */
	r = source_permits(&x->source);
	if (r == -ESRCH)
		return fail(&x->err, EHOSTDOWN, "rank %d is gone", x->rank.number);
	if (r < 0)
		return fail(&x->err, EPERM,
		    "rank %d's memory can't be read from here: allow ptrace for your own processes",
		    x->rank.number);
	return 0;
}

static void
on_copied(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	ring_copied(arg, m ? NULL : e);
}

/* For bytes on a GPU. */
static int
ask_copy(const struct ring_rank *rank, uint32_t handle, const struct range *x, struct ring_place *p,
    uint64_t to, struct err *e)
{
	struct agent *a = rank->agent;
	int slot = (int)rank->slot;

	if (!agent_slot_lives(a, slot))
		return fail(e, EHOSTDOWN, "the rank is gone");
	agent_send(a, Tcopy, 0, slot, agent_tag(a, slot, Tcopy, on_copied, p), -1, handle,
	    x->offset, (uint32_t)x->n, to);
	return 0;
}

int
got_take(struct got *x, struct msg *m)
{
	struct slice head;
	uint64_t addr;
	struct ring_rank rank = {x->rank.agent, (unsigned)x->rank.slot, ask_copy};
	uint8_t kind;
	int r = wire_unpack(m, Rget, &x->err, &kind, &x->handle, &addr, &x->size, &head);

	if (r < 0)
		return r;
	buf_add(&x->head, head.p, head.n);
	x->source =
	    (struct source){.head = x->head.p, .head_n = x->head.n, .size = x->size, .fd = -1};
	if (kind == GET_LIVE)
		return take_live(x, addr);
	close_pidfd(x);
	x->head_only = kind == GET_HEAD;
	if ((kind == GET_READ && x->use != GOT_READ) || (x->head_only && x->use != GOT_HEAD))
		return fail(
		    &x->err, EBADMSG, "rank %d's object came without its bytes", x->rank.number);
	if (kind == GET_READ || kind == GET_DEVICE)
		x->source.kind = SOURCE_PROVIDER;
	if (kind == GET_READ)
		x->source.provider = remote_provider(
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
	if (kind == GET_DEVICE) {
		x->source.provider =
		    ring_provider(daemon_.loop, &rank, x->handle, x->gpu, m->fd, &x->err);
		return -x->err.no;
	}
	x->source.kind = SOURCE_FD;
	x->source.fd = x->fd = m->fd;
	m->fd = -1;
	return 0;
}
