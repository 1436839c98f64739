/* Combines all ranks' parts into one object, in pieces that the copy threads process. */
#include "reduce.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PIECE = 32 * DTYPE_BLOCK, /* in numbers */
	PIECE_BYTES = PIECE * 8,  /* of the widest type; also the unit of copying */
	SCRATCH = 2 * PIECE_BYTES + (int)sizeof(union block),
	WORKERS = 2,
	AT_ONCE = 64 << 10 /* up to this many bytes are processed without a thread */
};

struct reduction {
	struct reduce_plan plan;
	int (*piece)(struct reduction *r, uint64_t k, char *scratch, struct err *e);
	uint64_t pieces;
	int memfd; /* -1: no result */
	/* while it runs */
	atomic_uint_fast64_t next;
	atomic_int workers;
	atomic_bool stop;
	pthread_mutex_t lock; /* of err */
	struct err err;
	struct loop *loop;
	struct loop_call done;
	reduce_fn *fn;
	void *arg;
};

struct worker {
	struct reduction *r;
	char *scratch;
};

static int
write_result(const struct reduction *r, uint64_t offset, const char *p, size_t n, struct err *e)
{
	if (pwrite_all("reduce.write", r->memfd, p, n, offset) < n)
		return fail_errno(
		    e, "%s.%s: no room for the result", r->plan.what, r->plan.op->name);
	return 0;
}

/* ---- pieces ---- */

static void
to_float(union block *x, enum dtype_kind kind)
{
	if (kind == KIND_SIGNED)
		for (int i = 0; i < DTYPE_BLOCK; i++)
			x->f[i] = (double)x->i[i];
	else
		for (int i = 0; i < DTYPE_BLOCK; i++)
			x->f[i] = (double)x->u[i];
}

/* Folds n numbers of the i-th part into acc. */
static void
fold_part(const struct reduce_plan *p, int i, union block *acc, union block *spare, const char *in,
    size_t n)
{
	const struct dtype *d = p->in[i];
	enum dtype_kind kind = p->op->mean ? KIND_FLOAT : p->of->kind;

	for (size_t b = 0; b * DTYPE_BLOCK < n; b++) {
		union block *to = i == 0 ? &acc[b] : spare;

		d->load(d, to, in + b * DTYPE_BLOCK * d->size);
		if (p->op->mean && d->kind != KIND_FLOAT)
			to_float(to, d->kind);
		if (i > 0)
			p->op->fold[kind](&acc[b], spare);
	}
}

static int
piece_numbers(struct reduction *r, uint64_t k, char *scratch, struct err *e)
{
	const struct reduce_plan *p = &r->plan;
	union block *acc = (union block *)(void *)scratch;
	char *bytes = scratch + PIECE_BYTES;
	union block *spare = (union block *)(void *)(bytes + PIECE_BYTES);
	uint64_t first = k * PIECE;
	size_t n = (size_t)MIN(p->total - first, (uint64_t)PIECE);
	size_t blocks = (n + DTYPE_BLOCK - 1) / DTYPE_BLOCK;

	for (int i = 0; i < p->n; i++) {
		size_t have = n * p->in[i]->size;

		if (shard_read(&p->parts[i], first * p->in[i]->size, bytes, have, e) < 0)
			return -e->no;
		/* whole blocks are computed, so zero the rest of the last one */
		memset(bytes + have, 0, blocks * DTYPE_BLOCK * p->in[i]->size - have);
		fold_part(p, i, acc, spare, bytes, n);
	}
	for (size_t b = 0; b < blocks; b++) {
		if (p->op->mean && !p->part)
			for (int i = 0; i < DTYPE_BLOCK; i++)
				acc[b].f[i] /= p->ranks;
		p->out->store(p->out, bytes + b * DTYPE_BLOCK * p->out->size, &acc[b]);
	}
	return write_result(r, first * p->out->size, bytes, n * p->out->size, e);
}

static int
piece_bytes(struct reduction *r, uint64_t k, char *scratch, struct err *e)
{
	uint64_t begin = k * PIECE_BYTES, end = MIN(begin + PIECE_BYTES, r->plan.total), at = 0;

	for (int i = 0; i < r->plan.n && at < end; at += r->plan.parts[i++].size) {
		uint64_t from = MAX(at, begin), to = MIN(at + r->plan.parts[i].size, end);

		if (from < to && (shard_read(&r->plan.parts[i], from - at, scratch,
				      (size_t)(to - from), e) < 0 ||
				     write_result(r, from, scratch, (size_t)(to - from), e) < 0))
			return -e->no;
	}
	return 0;
}

static int
piece_same(struct reduction *r, uint64_t k, char *scratch, struct err *e)
{
	uint64_t begin = k * PIECE_BYTES;
	size_t n = (size_t)MIN(r->plan.total - begin, (uint64_t)PIECE_BYTES);
	char *other = scratch + PIECE_BYTES;

	if (shard_read(&r->plan.parts[0], begin, scratch, n, e) < 0)
		return -e->no;
	for (int i = 1; i < r->plan.n; i++) {
		if (shard_read(&r->plan.parts[i], begin, other, n, e) < 0)
			return -e->no;
		if (memcmp(scratch, other, n) != 0)
			return fail(e, ENOTUNIQ, "%s: rank %d has another value than rank %d",
			    r->plan.what, r->plan.parts[i].rank, r->plan.parts[0].rank);
	}
	return r->plan.part ? write_result(r, begin, scratch, n, e) : 0;
}

/* ---- folds ---- */

#define FOLD(name, member, value)                                                                  \
	static void name(union block *restrict acc, const union block *restrict x)                 \
	{                                                                                          \
		for (int i = 0; i < DTYPE_BLOCK; i++) {                                            \
			__typeof__(acc->member[0]) a = acc->member[i], b = x->member[i];           \
                                                                                                   \
			acc->member[i] = (value);                                                  \
		}                                                                                  \
	}

FOLD(add_floats, f, a + b)
FOLD(add_integers, u, a + b) /* wraps, signed or unsigned */
/* NaN propagates */
FOLD(min_floats, f, b < a || b != b ? b : a)
FOLD(max_floats, f, b > a || b != b ? b : a)
FOLD(min_signed, i, b < a ? b : a)
FOLD(max_signed, i, b > a ? b : a)
FOLD(min_unsigned, u, b < a ? b : a)
FOLD(max_unsigned, u, b > a ? b : a)

#define ADDS true
#define MEAN true

const struct reduce_op reduce_mean = {
    "mean", reduce_plan_numbers, piece_numbers, {add_floats, NULL, NULL}, ADDS, MEAN};
const struct reduce_op reduce_sum = {"sum", reduce_plan_numbers, piece_numbers,
    {add_floats, add_integers, add_integers}, ADDS, false};
const struct reduce_op reduce_min = {"min", reduce_plan_numbers, piece_numbers,
    {min_floats, min_signed, min_unsigned}, false, false};
const struct reduce_op reduce_max = {"max", reduce_plan_numbers, piece_numbers,
    {max_floats, max_signed, max_unsigned}, false, false};
const struct reduce_op reduce_gather = {
    "gather", reduce_plan_stack, piece_bytes, {NULL}, false, false};
const struct reduce_op reduce_cat = {"cat", reduce_plan_join, piece_bytes, {NULL}, false, false};
const struct reduce_op reduce_same = {"same", reduce_plan_same, piece_same, {NULL}, false, false};

const struct reduce_op *
reduce_by_hosts(struct slice name)
{
	static const struct reduce_op *const ops[] = {
	    &reduce_mean, &reduce_sum, &reduce_min, &reduce_max, &reduce_same};

	for (size_t i = 0; i < ARRAY_LEN(ops); i++)
		if (slice_eq(name, ops[i]->name))
			return ops[i];
	return NULL;
}

/* ---- running ---- */

/* A mere comparison has no result, unless other hosts' parts are to be compared with it. */
static int
open_result(struct reduction *r, struct err *e)
{
	if (r->plan.op == &reduce_same && !r->plan.part)
		return 0;
	if (!fault("reduce.memfd", EMFILE))
		r->memfd = memfd_create("ddipfs-over", MFD_CLOEXEC);
	return r->memfd < 0 ? fail_errno(e, "memfd_create") : 0;
}

static struct reduction *
make(const struct reduce_op *op, const char *what, const struct shard *parts, int n, bool part,
    struct err *e)
{
	struct reduction *r = xcalloc(1, sizeof(*r));
	struct reduce_plan *p = &r->plan;
	uint64_t unit;

	r->memfd = -1;
	*p = (struct reduce_plan){.op = op, .what = xstrdup(what), .n = n, .part = part};
	pthread_mutex_init(&r->lock, NULL);
	p->parts = xmalloc((size_t)n * sizeof(*parts));
	memcpy(p->parts, parts, (size_t)n * sizeof(*parts));
	if (op->plan(p, e) < 0 || open_result(r, e) < 0) {
		reduce_free(r);
		return NULL;
	}
	r->piece = p->joined ? piece_bytes : op->piece;
	unit = r->piece == piece_numbers ? PIECE : PIECE_BYTES;
	r->pieces = (p->total + unit - 1) / unit;
	return r;
}

struct reduction *
reduce_new(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e)
{
	return make(op, what, parts, n, false, e);
}

struct reduction *
reduce_new_part(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e)
{
	return make(op, what, parts, n, true, e);
}

void
reduce_free(struct reduction *r)
{
	if (!r)
		return;
	if (r->memfd >= 0)
		close(r->memfd);
	pthread_mutex_destroy(&r->lock);
	reduce_plan_free(&r->plan);
	free(r);
}

static void
stop_with(struct reduction *r, const struct err *e)
{
	pthread_mutex_lock(&r->lock);
	if (!r->err.no)
		r->err = *e;
	pthread_mutex_unlock(&r->lock);
	atomic_store(&r->stop, true);
}

/* Makes the next piece. Returns false if there are no more. */
static bool
make_piece(struct reduction *r, char *scratch)
{
	struct err e = {0};
	uint64_t k = atomic_load(&r->stop) ? r->pieces : atomic_fetch_add(&r->next, 1);

	if (k >= r->pieces)
		return false;
	if (r->piece(r, k, scratch, &e) < 0)
		stop_with(r, &e);
	return true;
}

/* Runs on a copy thread: makes one piece, then goes back to the end of the queue, where others wait
 * too. */
static void
work(void *arg)
{
	struct worker *w = arg;
	struct reduction *r = w->r;

	if (make_piece(r, w->scratch)) {
		copy_call(work, w);
		return;
	}
	free(w->scratch);
	free(w);
	if (atomic_fetch_sub(&r->workers, 1) == 1)
		loop_post(r->loop, &r->done);
}

static void
on_done(void *arg)
{
	struct reduction *r = arg;

	r->fn(r->arg, &r->err);
}

static void
run_here(struct reduction *r)
{
	char *scratch = xmalloc(SCRATCH);

	while (make_piece(r, scratch))
		;
	free(scratch);
	r->fn(r->arg, &r->err);
}

void
reduce_run(struct reduction *r, struct loop *l, reduce_fn *fn, void *arg)
{
	uint64_t bytes = 0;

	r->fn = fn;
	r->arg = arg;
	for (int i = 0; i < r->plan.n; i++)
		bytes += r->plan.parts[i].size;
	if (bytes <= AT_ONCE) {
		run_here(r);
		return;
	}
	r->loop = l;
	r->done = (struct loop_call){.fn = on_done, .arg = r};
	atomic_store(&r->workers, WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = xmalloc(sizeof(*w));

		*w = (struct worker){r, xmalloc(SCRATCH)};
		copy_call(work, w);
	}
}

void
reduce_cancel(struct reduction *r)
{
	static const struct err cancelled = {ECANCELED, "no longer wanted"};

	stop_with(r, &cancelled);
}

int
reduce_result(const struct reduction *r)
{
	return r->memfd;
}

bool
reduce_numbers(const struct reduction *r, const char **op, const char **dtype, uint64_t *numbers)
{
	if (!r->plan.of)
		return false;
	*op = r->plan.op->name;
	*dtype = r->plan.of->name;
	*numbers = r->plan.total;
	return true;
}

const char *
reduce_line(const struct reduction *r)
{
	return r->plan.line;
}
