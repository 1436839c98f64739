/*
 * Reads an object from its ranks. Without an OP, one rank gives the view's bytes. With one, each
 * rank gives its part (across_ranks.py), reduce.c combines the parts, and rank 0 makes the view of
 * the result. Knows no files.
 */
#include "object/pull.h"
#include "base/daemon.h"
#include "object/device.h"
#include "object/remote.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What one rank gave. */
struct got {
	struct pull *p;
	struct pull_rank rank;	       /* the first of those that are asked */
	const struct pull_rank *ranks; /* all of them; several: their host combines their parts */
	int rank_count;
	uint32_t tag;	 /* of the question; 0: there is none, or it is answered */
	uint32_t handle; /* to be freed; 0: none */
	struct buf head;
	int fd;
	int pidfd, pidfd_errno; /* opened before the question: who answers it had the pid then */
	struct source source;
	struct device *device; /* its bytes are on a GPU; NULL: they are in the source */
	struct remote *remote; /* or on another host */
	uint64_t size;
	struct err err;
};

struct pull {
	struct var_name name;
	int n, left; /* of got; answers that are still out */
	struct got *got;
	struct pull_rank *ranks;
	struct got whole; /* the view of the result, by the first rank */
	struct reduction *reduction;
	bool running; /* the reduction */
	bool hosted;  /* the bytes must be in memory of the host */
	pull_fn *fn;  /* NULL: nobody waits any more */
	void *arg;
	TAILQ_ENTRY(pull) link;
};

static TAILQ_HEAD(, pull) pulls = TAILQ_HEAD_INITIALIZER(pulls);

static struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

static void
close_pidfd(struct got *x)
{
	if (x->pidfd >= 0)
		close(x->pidfd);
	x->pidfd = -1;
}

static void
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

static void
release_parts(struct pull *p)
{
	for (int i = 0; i < p->n; i++)
		got_free(&p->got[i]);
	reduce_free(p->reduction);
	p->reduction = NULL;
}

static void
destroy(struct pull *p)
{
	release_parts(p);
	got_free(&p->whole);
	TAILQ_REMOVE(&pulls, p, link);
	free(p->got);
	free(p->ranks);
	free(p);
}

static void
cancel_one(const struct got *x)
{
	struct agent *a = x->rank.agent;

	if (agent_slot_lives(a, x->rank.slot))
		agent_send(a, Ncancel, 0, x->rank.slot, 0, -1, x->tag);
}

/* Nobody waits for what is still asked; the answers come all the same. */
static void
cancel(struct pull *p)
{
	for (int i = 0; i < p->n; i++)
		if (p->got[i].tag)
			cancel_one(&p->got[i]);
	if (p->whole.tag)
		cancel_one(&p->whole);
}

void
pull_free(struct pull *p)
{
	if (!p)
		return;
	p->fn = NULL;
	cancel(p);
	if (p->running)
		reduce_cancel(p->reduction);
	else if (p->left == 0)
		destroy(p);
}

static void
ended(struct pull *p, const struct err *e)
{
	pull_fn *fn = p->fn;

	if (fn)
		fn(p->arg, e);
	else
		destroy(p);
}

/* The bytes that lie in the rank's own memory. */
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
	/* forbidden here (ptrace rules)? Better now than in the middle of a read */
	if (x->size > x->head.n && copy_read(&x->source, x->head.n, &probe, 1) < 0)
		return fail(&x->err, EPERM,
		    "rank %d's memory can't be read from here: allow ptrace for your own processes",
		    x->rank.number);
	return 0;
}

static int
take_bytes(struct got *x, struct msg *m)
{
	struct slice head;
	uint64_t addr;
	uint8_t kind;
	int r = wire_unpack(m, &x->err, &kind, &x->handle, &addr, &x->size, &head);

	if (r < 0)
		return r;
	buf_add(&x->head, head.p, head.n);
	x->source = (struct source){.head = x->head.p, .head_n = x->head.n, .fd = -1};
	if (kind == GET_LIVE)
		return take_live(x, addr);
	close_pidfd(x);
	if (kind == GET_READ && (x->p->name.op || x->p->hosted))
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

static void combine(struct pull *p);

static void
on_got(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct got *x = arg;
	struct pull *p = x->p;

	x->tag = 0;
	if (!m)
		x->err = *e;
	else
		take_bytes(x, m);
	if (--p->left > 0)
		return;
	if (x == &p->whole) {
		release_parts(p);
		ended(p, &x->err);
		return;
	}
	for (int i = 0; i < p->n; i++)
		if (p->got[i].err.no) {
			ended(p, &p->got[i].err);
			return;
		}
	if (p->name.op && p->fn)
		combine(p);
	else
		ended(p, &(struct err){0});
}

/* The same question to several ranks of another host. */
static void
ask_host(const struct pull *p, const struct got *x, const char *name, const char *op)
{
	struct buf ranks = {0};

	for (int i = 0; i < x->rank_count; i++) {
		wire_put_number(&ranks, '4', (uint64_t)x->ranks[i].number);
		wire_put_number(&ranks, '2', (uint64_t)x->ranks[i].slot);
		wire_put_number(&ranks, '4', (uint64_t)x->ranks[i].far_pid);
	}
	agent_send(x->rank.agent, Treduce, 0, x->rank.slot, x->tag, -1, text(name),
	    text(p->name.view->name), text(op), ((struct slice){ranks.p, ranks.n}));
	buf_free(&ranks);
}

/* A question to these ranks. fd: the result that the one is to make a view of. */
static void
ask(struct pull *p, struct got *x, const struct pull_rank *ranks, int n, const char *op, int fd)
{
	const char *dot = *p->name.attribute ? "." : "";
	char *name = xasprintf("%s%s%s", p->name.name, dot, p->name.attribute);

	*x = (struct got){.p = p, .rank = *ranks, .ranks = ranks, .rank_count = n, .fd = -1};
	x->pidfd = fault("pull.pidfd", EMFILE) ? -1 : (int)syscall(SYS_pidfd_open, ranks->pid, 0);
	x->pidfd_errno = errno;
	x->tag = agent_tag(ranks->agent, ranks->slot, on_got, x);
	p->left++;
	if (n > 1)
		ask_host(p, x, name, op);
	else
		agent_send(ranks->agent, Tget, 0, ranks->slot, x->tag, fd, text(name),
		    text(p->name.view->name), text(op));
	free(name);
}

static void
on_combined(void *arg, const struct err *e)
{
	struct pull *p = arg;
	struct pull_rank first = p->got[0].rank;
	struct err why = *e;
	bool more = !why.no && p->fn && reduce_result(p->reduction) >= 0;

	p->running = false;
	if (more && !agent_slot_lives(first.agent, first.slot))
		fail(&why, EHOSTDOWN, "rank %d went away while %s was put together", first.number,
		    p->name.name);
	else if (more) {
		ask(p, &p->whole, p->ranks, 1, reduce_line(p->reduction),
		    reduce_result(p->reduction));
		return;
	}
	ended(p, &why);
}

static void
combine(struct pull *p)
{
	const struct reduce_op *op = p->name.op->reads;
	struct shard *parts = xcalloc((size_t)p->n, sizeof(*parts));
	struct err e = {0};

	for (int i = 0; i < p->n && !e.no; i++) {
		struct got *x = &p->got[i];

		if (op == &reduce_same)
			shard_raw(&parts[i], x->rank.number, &x->source, x->size);
		else
			shard_parse(&parts[i], x->rank.number, &x->source, x->size, &e);
	}
	p->reduction = e.no ? NULL : reduce_new(op, p->name.name, parts, p->n, &e);
	free(parts);
	if (!p->reduction) {
		ended(p, &e);
		return;
	}
	p->running = true;
	reduce_run(p->reduction, daemon_.loop, on_combined, p);
}

/* How many of these ranks, from the first on, are asked by one question: those of another host. */
static int
count_together(const struct var_name *name, const struct pull_rank *ranks, int n)
{
	const struct agent *a = ranks->agent;
	int together = 1;

	if (!name->op || a->here || !reduce_by_hosts(slice_text(name->op->name)))
		return 1;
	while (together < n && ranks[together].agent == a)
		together++;
	return together;
}

struct pull *
pull_new(const struct pull_rank *ranks, int n, const struct var_name *name)
{
	struct pull *p = xcalloc(1, sizeof(*p));

	n = name->op ? n : 1;
	*p = (struct pull){.name = *name};
	p->whole = (struct got){.fd = -1, .pidfd = -1};
	p->ranks = xcalloc((size_t)n, sizeof(*ranks));
	memcpy(p->ranks, ranks, (size_t)n * sizeof(*ranks));
	p->got = xcalloc((size_t)n, sizeof(*p->got));
	for (int i = 0, together; i < n; i += together) {
		together = count_together(name, p->ranks + i, n - i);
		p->got[p->n++] = (struct got){.p = p,
		    .rank = p->ranks[i],
		    .ranks = p->ranks + i,
		    .rank_count = together,
		    .fd = -1,
		    .pidfd = -1};
	}
	TAILQ_INSERT_TAIL(&pulls, p, link);
	return p;
}

void
pull_start(struct pull *p, pull_fn *fn, void *arg)
{
	/* an OP that only compares takes the view's bytes, as one that wants a copy of them */
	const char *op = p->name.op ? p->name.op->name : p->hosted ? "same" : "";

	p->fn = fn;
	p->arg = arg;
	for (int i = 0; i < p->n; i++)
		ask(p, &p->got[i], p->got[i].ranks, p->got[i].rank_count, op, -1);
}

static bool
asks(const struct got *x, const struct agent *a, int slot)
{
	for (int i = 0; x->tag && i < x->rank_count; i++)
		if (x->ranks[i].agent == a && x->ranks[i].slot == slot)
			return true;
	return false;
}

static bool
waits_for(const struct pull *p, const struct agent *a, int slot)
{
	bool waits = asks(&p->whole, a, slot);

	for (int i = 0; i < p->n && !waits; i++)
		waits = asks(&p->got[i], a, slot);
	return waits;
}

void
pull_interrupt(const struct agent *a, int slot)
{
	struct pull *p, *next;
	struct err e;

	/* not EINTR: some programs would begin anew by themselves */
	fail(&e, ECANCELED, "interrupted before the rank had made the view");
	for (p = TAILQ_FIRST(&pulls); p; p = next) {
		if (p->fn && waits_for(p, a, slot))
			p->fn(p->arg, &e); /* it stays in the list until the rank has answered */
		next = TAILQ_NEXT(p, link);
	}
}

static const struct got *
result(const struct pull *p)
{
	return p->name.op && p->name.op->reads != &reduce_same ? &p->whole : &p->got[0];
}

const struct source *
pull_source(const struct pull *p)
{
	return &result(p)->source;
}

void
pull_to_host(struct pull *p)
{
	p->hosted = true;
}

void
pull_read(const struct pull *p, struct req *r, size_t n)
{
	const struct got *x = result(p);
	if (x->remote)
		remote_read(x->remote, r, (struct slice){x->head.p, x->head.n}, r->offset, n);
	else if (x->device)
		device_read(x->device, r, (struct slice){x->head.p, x->head.n}, r->offset, n);
	else
		req_copy(r, &x->source, r->offset, n);
}

uint64_t
pull_size(const struct pull *p)
{
	return result(p)->size;
}
