/*
 * An object on its way out of its ranks. Without an OP one rank gives the view's bytes. With one
 * each rank gives its part (across_ranks.py), the parts become one (reduce.c), and rank 0 makes the
 * view of that. Knows no files.
 */
#include "object/pull.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/rank.h"
#include "group/registry.h"
#include "host/agent.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What one rank gave. */
struct got {
	struct pull *p;
	int rank, slot;	 /* slot: of the process that gave it */
	uint32_t handle; /* to be freed; 0: none */
	struct buf head;
	int fd;
	struct source source;
	uint64_t size;
	struct err err;
};

struct pull {
	struct group *g; /* referenced */
	struct var_name name;
	int n, left; /* ranks; answers that are still out */
	struct got *got;
	struct got whole; /* the view of the result, by the first rank */
	struct reduction *reduction;
	bool running; /* the reduction */
	pull_fn *fn;  /* NULL: nobody waits any more */
	void *arg;
};

static struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

static void
got_free(struct pull *p, struct got *x)
{
	struct rank *k = group_rank(p->g, x->rank);
	struct agent *a = k ? p->g->agent : NULL;

	if (x->handle && a && a->conn && k->slot == x->slot)
		agent_send(a, Nfree, 0, x->slot, 0, -1, x->handle);
	x->handle = 0;
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
	buf_free(&x->head);
}

static void
let_go_of_parts(struct pull *p)
{
	for (int i = 0; i < p->n; i++)
		got_free(p, &p->got[i]);
	reduce_free(p->reduction);
	p->reduction = NULL;
}

static void
destroy(struct pull *p)
{
	let_go_of_parts(p);
	got_free(p, &p->whole);
	group_unref(p->g);
	free(p->got);
	free(p);
}

void
pull_free(struct pull *p)
{
	if (!p)
		return;
	p->fn = NULL;
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

static int
take_bytes(struct got *x, struct msg *m)
{
	struct rank *k = group_rank(x->p->g, x->rank);
	struct slice head;
	uint64_t addr;
	uint8_t kind;
	int r = wire_unpack(m, &x->err, &kind, &x->handle, &addr, &x->size, &head);

	if (r < 0)
		return r;
	buf_add(&x->head, head.p, head.n);
	x->source = (struct source){.head = x->head.p, .head_n = x->head.n, .fd = -1};
	if (kind == GET_FD) {
		x->fd = m->fd;
		m->fd = -1;
		x->source.kind = SOURCE_FD;
		x->source.fd = x->fd;
	} else if (kind == GET_LIVE && k) {
		char probe;

		x->source.kind = SOURCE_PROCESS;
		x->source.pid = k->pid;
		x->source.addr = addr;
		/* forbidden here (ptrace rules)? Better now than in the middle of a read */
		if (x->size > x->head.n && copy_read(&x->source, x->head.n, &probe, 1) < 0)
			return fail(&x->err, EPERM,
			    "rank %d's memory can't be read from here: allow ptrace for your own "
			    "processes",
			    x->rank);
	}
	return 0;
}

static void combine(struct pull *p);

static void
on_got(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct got *x = arg;
	struct pull *p = x->p;

	if (!m)
		x->err = *e;
	else
		take_bytes(x, m);
	if (--p->left > 0)
		return;
	if (x == &p->whole) {
		let_go_of_parts(p);
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

/* A question to a rank. fd: the result that it is to make a view of. */
static void
ask(struct pull *p, struct got *x, int rank, const char *op, int fd)
{
	struct rank *k = group_rank(p->g, rank);

	*x = (struct got){.p = p, .rank = rank, .slot = k->slot, .fd = -1};
	p->left++;
	agent_send(p->g->agent, Tget, 0, k->slot, agent_tag(p->g->agent, k->slot, on_got, x), fd,
	    text(p->name.name), text(p->name.view->name), text(op));
}

static int
check_rank(const struct group *g, const struct rank *k, int rank, struct err *e)
{
	if (k && external_refuse(k, e) < 0)
		return -e->no;
	if (k && (k->state == R_READY || k->state == R_INIT) && g->agent && g->agent->conn)
		return 0;
	return fail(e, ESRCH, "rank %d has no engine that could answer (echo start > %s/ctl)", rank,
	    g->name);
}

static void
on_combined(void *arg, const struct err *e)
{
	struct pull *p = arg;
	int first = p->got[0].rank;
	struct err why = *e;

	p->running = false;
	if (!why.no && p->fn && reduce_result(p->reduction) >= 0 &&
	    check_rank(p->g, group_rank(p->g, first), first, &why) == 0)
		ask(p, &p->whole, first, reduce_line(p->reduction), reduce_result(p->reduction));
	else
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
			shard_raw(&parts[i], x->rank, &x->source, x->size);
		else
			shard_parse(&parts[i], x->rank, &x->source, x->size, &e);
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

struct pull *
pull_new(const struct place *at, const struct var_name *name, struct err *e)
{
	struct group *g = at->g;
	int ranks[MAX_RANKS] = {at->rank}, n = at->rank < 0 ? external_own(g, ranks) : 1;
	struct pull *p;

	if (!name->op)
		n = 1;
	for (int i = 0; i < n; i++)
		if (check_rank(g, group_rank(g, ranks[i]), ranks[i], e) < 0)
			return NULL;
	p = xcalloc(1, sizeof(*p));
	*p = (struct pull){.g = group_ref(g), .name = *name, .n = n, .whole.fd = -1};
	p->got = xcalloc((size_t)n, sizeof(*p->got));
	for (int i = 0; i < n; i++)
		p->got[i] = (struct got){.p = p, .rank = ranks[i], .fd = -1};
	return p;
}

void
pull_start(struct pull *p, pull_fn *fn, void *arg)
{
	/* an OP that only compares takes the view's bytes */
	bool parts = p->name.op && p->name.op->reads != &reduce_same;

	p->fn = fn;
	p->arg = arg;
	for (int i = 0; i < p->n; i++)
		ask(p, &p->got[i], p->got[i].rank, parts ? p->name.op->name : "", -1);
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

uint64_t
pull_size(const struct pull *p)
{
	return result(p)->size;
}
