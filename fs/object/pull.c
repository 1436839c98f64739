/*
 * Reads an object from its ranks. Without an OP, one rank returns the view's bytes. With one, each
 * rank returns its part (across_ranks.py), reduce.c combines the parts, and rank 0 makes the view
 * of the result. Where that may be a head before the result's bytes, rank 0 is first asked for the
 * head only: if it says that the bytes follow as they are, these are made when they are read. If
 * all parts are on GPUs and it is possible, they are combined there; otherwise they are requested
 * again. Knows no files.
 */
#include "object/pull.h"
#include "base/daemon.h"
#include "object/gpu_combine.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 64 }; /* per host, when parts are combined on GPUs */

/* Results of up to this many bytes are always made at once: then their reads cost least. */
enum { SMALL = 64 << 10 };

struct pull {
	struct var_name name;
	int n, left; /* of got; pending replies */
	struct got *got;
	struct pull_rank *ranks;
	struct got whole; /* the view of the result, from the first rank */
	struct reduction *reduction;
	bool running, combined;	     /* the reduction: it is at work; its result is complete */
	bool brought;		     /* the parts are copies of what lies on GPUs */
	struct maker *maker;	     /* makes the result when it is read; NULL: it exists */
	struct gpu_combine *on_gpus; /* the reduction on GPUs; NULL: not running */
	bool hosted;		     /* the bytes must be in this host's memory */
	pull_fn *fn;		     /* NULL: the result is no longer wanted */
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
		agent_cancel(a, x->rank.slot, x->tag);
}

/* The pending requests are no longer wanted; their replies come all the same. */
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
	else if (p->on_gpus)
		gpu_combine_cancel(p->on_gpus);
	else if (p->left == 0 && (!p->maker || maker_leave(p->maker)))
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

static void
on_unused(void *arg, const struct err *e)
{
	destroy(arg);
}

static void combine(struct pull *p);
static void run(struct pull *p);
static void ask_view(struct pull *p, enum got_use use);

/* Puts the result behind the head of the view: what exists of it, or what makes it. */
static void
add_result(struct pull *p, struct got *x)
{
	if (p->combined) {
		x->source.kind = SOURCE_FD;
		x->source.fd = x->fd = reduce_take_result(p->reduction);
		release_parts(p);
		return;
	}
	p->maker = reduce_maker(p->reduction, daemon_.loop, on_unused, p);
	x->source.kind = SOURCE_MAKER;
	x->source.maker = p->maker;
}

/* The first rank has made the view, or could not. */
static void
on_view(struct pull *p)
{
	struct got *x = &p->whole;

	if (x->use != GOT_HEAD || x->err.no || !p->fn) {
		release_parts(p);
		ended(p, &x->err);
	} else if (x->head_only && x->size == x->head.n + reduce_size(p->reduction)) {
		add_result(p, x);
		ended(p, &x->err);
	} else if (p->combined) {
		got_free(x);
		ask_view(p, GOT_HOST);
	} else {
		got_free(x);
		run(p);
	}
}

static void
on_got(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct got *x = arg;
	struct pull *p = x->p;

	x->tag = 0;
	if (!m)
		x->err = *e;
	else
		got_take(x, m);
	if (--p->left > 0)
		return;
	if (x == &p->whole) {
		on_view(p);
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

/* Texts are abridged, so the objects' fingerprints are compared instead. The text is taken from the
 * first rank. */
static bool
compares_fingerprints(const struct pull *p)
{
	return p->name.op && p->name.op->reads == &reduce_same && !*p->name.view->name;
}

static const char *
asked_view(const struct pull *p, const struct got *x)
{
	return compares_fingerprints(p) && x != &p->whole ? "fingerprint" : p->name.view->name;
}

/* Sends one request for several ranks of another host. */
static void
ask_host(const struct pull *p, const struct got *x, const char *name, const char *op)
{
	struct buf ranks = {0};

	for (int i = 0; i < x->rank_count; i++) {
		wire_put_number(&ranks, '4', (uint64_t)x->ranks[i].number);
		wire_put_number(&ranks, '4', (uint64_t)x->ranks[i].slot);
	}
	agent_send(x->rank.agent, Treduce, 0, x->rank.slot, x->tag, -1, text(name),
	    text(asked_view(p, x)), text(op), ((struct slice){ranks.p, ranks.n}));
	buf_free(&ranks);
}

/* Sends a request to the ranks of x. fd: the result that the rank is to make a view of. */
static void
ask(struct pull *p, struct got *x, enum got_use use, const char *op, int fd)
{
	const char *dot = *p->name.attribute ? "." : "";
	char *name = xasprintf("%s%s%s%s", p->name.scope, p->name.name, dot, p->name.attribute);
	char *how = use == GOT_HEAD ? xasprintf("blank %llu %s",
					  (unsigned long long)reduce_size(p->reduction), op)
				    : xasprintf("%s%s", use == GOT_COMBINE ? "gpu " : "", op);
	const struct pull_rank *rank = x->ranks;

	*x = (struct got){.p = p,
	    .rank = *rank,
	    .ranks = rank,
	    .rank_count = x->rank_count,
	    .use = use,
	    .fd = -1,
	    .pidfd = -1};
	got_open(x);
	x->tag = agent_tag(rank->agent, rank->slot, x->rank_count > 1 ? Treduce : Tget, on_got, x);
	p->left++;
	if (x->rank_count > 1)
		ask_host(p, x, name, how);
	else
		agent_send(rank->agent, Tget, 0, rank->slot, x->tag, fd, text(name),
		    text(asked_view(p, x)), text(how));
	free(name);
	free(how);
}

static bool
is_here(const struct pull *p, const struct pull_rank *rank, struct err *e)
{
	if (agent_slot_lives(rank->agent, rank->slot))
		return true;
	fail(e, EHOSTDOWN, "rank %d ended while %s was read", rank->number, p->name.name);
	return false;
}

/* Has the first rank make the view of the result, or of its own object if texts are compared. */
static void
ask_view(struct pull *p, enum got_use use)
{
	bool own = compares_fingerprints(p);
	struct err why;

	if (is_here(p, &p->got[0].rank, &why))
		ask(p, &p->whole, use, own ? "" : reduce_line(p->reduction),
		    own || use == GOT_HEAD ? -1 : reduce_result(p->reduction));
	else
		ended(p, &why);
}

/* Can it be that the view is a head, and then the result as it lies? */
static bool
may_lie(const struct pull *p)
{
	return p->name.view->as_it_lies && reduce_is_data(p->reduction) &&
	       reduce_size(p->reduction) > SMALL;
}

static void
on_combined(void *arg, const struct err *e)
{
	struct pull *p = arg;
	bool more = !e->no && p->fn;

	p->running = false;
	p->combined = more;
	if (more && (compares_fingerprints(p) || reduce_result(p->reduction) >= 0))
		ask_view(p, may_lie(p) ? GOT_HEAD : GOT_HOST);
	else
		ended(p, e);
}

/* Can the parts be combined? Their bytes need not be here yet. False: the pull has ended with the
 * reason. */
static bool
plan(struct pull *p)
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
	if (!e.no)
		return true;
	ended(p, &e); /* this may free p */
	return false;
}

/* Requests again the parts that were left on a GPU, with their current values. */
static void
bring_to_host(struct pull *p)
{
	struct err e;

	reduce_free(p->reduction);
	p->reduction = NULL;
	for (int i = 0; i < p->n; i++)
		if (!is_here(p, &p->got[i].rank, &e)) {
			ended(p, &e);
			return;
		}
	p->brought = true;
	for (int i = 0; i < p->n; i++)
		if (p->got[i].on_gpu) {
			got_free(&p->got[i]);
			ask(p, &p->got[i], GOT_HOST, p->name.op->name, -1);
		}
}

/* What failed there may succeed on the host. */
static void
on_gpus_combined(void *arg, const struct err *e)
{
	struct pull *p = arg;

	p->on_gpus = NULL;
	if (e->no && p->fn)
		bring_to_host(p);
	else
		on_combined(p, e);
}

/* Finds the parts on the GPUs. False: not each of them is on a GPU of its own, or on one that the
 * ranks share knowingly, which NCCL accepts. */
static bool
find_on_gpus(const struct pull *p, struct gpu_part *parts)
{
	uint64_t taken = 0;

	for (int i = 0; i < p->n; i++) {
		const struct got *x = &p->got[i];

		if (!x->on_gpu || x->gpu >= GPUS_MAX)
			return false;
		if (!x->rank.sees_one && taken >> x->gpu & 1)
			return false;
		taken |= 1ULL << x->gpu;
		parts[i] = (struct gpu_part){x->rank.agent, x->rank.slot, x->handle};
	}
	return true;
}

static void
combine_on_gpus(struct pull *p)
{
	struct gpu_part *parts = xcalloc((size_t)p->n, sizeof(*parts));

	if (find_on_gpus(p, parts))
		p->on_gpus = gpu_combine_new(parts, p->n, p->reduction, on_gpus_combined, p);
	free(parts);
	if (p->on_gpus)
		gpu_combine_start(p->on_gpus);
	else
		bring_to_host(p);
}

static void
run(struct pull *p)
{
	p->running = true;
	reduce_run(p->reduction, daemon_.loop, on_combined, p);
}

/* May the result be made when it is read? Copies, of what lies on GPUs or on other hosts, are kept
 * for a moment only if the result is smaller. */
static bool
may_wait(const struct pull *p)
{
	bool copies = p->brought;

	for (int i = 0; i < p->n; i++)
		copies |= p->got[i].source.kind == SOURCE_FD || !p->got[i].rank.agent->here;
	return may_lie(p) && !(copies && p->name.op->reads->fold[KIND_FLOAT]);
}

static void
combine(struct pull *p)
{
	bool away = false;

	if (!plan(p))
		return;
	for (int i = 0; i < p->n; i++)
		away |= p->got[i].on_gpu;
	if (away) {
		combine_on_gpus(p);
	} else if (may_wait(p)) {
		ask_view(p, GOT_HEAD);
	} else {
		run(p);
	}
}

/* The number of ranks, from the first on, that share one request: those of one other host. */
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
pull_new(struct pull_rank *ranks, int n, const struct var_name *name)
{
	struct pull *p = xcalloc(1, sizeof(*p));

	*p = (struct pull){.name = *name, .ranks = ranks};
	p->whole = (struct got){.ranks = p->ranks, .rank_count = 1, .fd = -1, .pidfd = -1};
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

/* May the parts stay on the GPUs? Only those of one host, and only if the OP does arithmetic. */
static bool
may_stay_on_gpus(const struct pull *p)
{
	const struct reduce_op *op = p->name.op ? p->name.op->reads : NULL;
	bool here = true;

	for (int i = 0; i < p->n; i++)
		here &= p->got[i].rank.agent->here;
	return here && p->n > 1 && op && op->fold[KIND_FLOAT];
}

static enum got_use
use_of_parts(const struct pull *p)
{
	if (may_stay_on_gpus(p))
		return GOT_COMBINE;
	return p->name.op || p->hosted ? GOT_HOST : GOT_READ;
}

void
pull_start(struct pull *p, pull_fn *fn, void *arg)
{
	/* `same` returns the view's bytes in host memory, which is what a copy needs */
	const char *op = p->name.op ? p->name.op->name : p->hosted ? "same" : "";
	enum got_use use = use_of_parts(p);

	p->fn = fn;
	p->arg = arg;
	for (int i = 0; i < p->n; i++)
		ask(p, &p->got[i], use, op, -1);
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
		waits = asks(&p->got[i], a, slot) ||
			(p->on_gpus && p->got[i].rank.agent == a && p->got[i].rank.slot == slot);
	return waits;
}

void
pull_interrupt(const struct agent *a, int slot)
{
	struct pull *p, *next;
	struct err e;

	/* not EINTR: some programs would retry by themselves */
	fail(&e, ECANCELED, "interrupted before the rank had made the view");
	for (p = TAILQ_FIRST(&pulls); p; p = next) {
		if (p->fn && waits_for(p, a, slot))
			p->fn(p->arg, &e); /* it stays in the list until the rank has replied */
		next = TAILQ_NEXT(p, link);
	}
}

static const struct got *
result(const struct pull *p)
{
	if (!p->name.op || (p->name.op->reads == &reduce_same && !compares_fingerprints(p)))
		return &p->got[0];
	return &p->whole;
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

uint64_t
pull_size(const struct pull *p)
{
	return result(p)->size;
}
