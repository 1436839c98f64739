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
	NUMBERS = 16 * DTYPE_BLOCK, /* that are computed at once */
	NUMBER = 8,		    /* bytes of the widest one */
	PIECE = 128 << 10,	    /* bytes of a result that a thread makes before another job */
	SCRATCH = MAX(2 * NUMBERS * NUMBER + (int)sizeof(union block), PIECE),
	WORKERS = 2,
	AT_ONCE =
	    64 << 10, /* fewer bytes are combined without a thread: none is another process's */
	PADDED_MAX = 256 << 20, /* bytes of strings that are much shorter without padding */
	SHARE = 64 << 10,	/* bytes of a range that several threads make */
	HELPERS = 2		/* besides the one that was asked for that range */
};

struct reduction {
	struct maker maker; /* first */
	struct reduce_plan plan;
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
	char *to, *scratch;
};

/* ---- ranges ---- */

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

/* Computes n numbers, and returns their bytes, in scratch. */
static const char *
combine(const struct reduce_plan *p, uint64_t first, size_t n, char *scratch, struct err *e)
{
	union block *acc = (union block *)(void *)scratch;
	char *bytes = scratch + NUMBERS * NUMBER;
	union block *spare = (union block *)(void *)(bytes + NUMBERS * NUMBER);
	size_t blocks = (n + DTYPE_BLOCK - 1) / DTYPE_BLOCK;

	for (int i = 0; i < p->n; i++) {
		size_t have = n * p->in[i]->size;

		if (shard_read(&p->parts[i], first * p->in[i]->size, bytes, have, e) < 0)
			return NULL;
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
	return bytes;
}

static int
range_numbers(
    const struct reduce_plan *p, uint64_t offset, char *to, size_t n, char *scratch, struct err *e)
{
	size_t size = p->out->size, skip = offset % size, done = 0;
	uint64_t first = offset / size;

	while (done < n) {
		size_t count = MIN((skip + n - done + size - 1) / size, (size_t)NUMBERS);
		size_t have = MIN(count * size - skip, n - done);
		const char *bytes = combine(p, first, count, scratch, e);

		if (!bytes)
			return -e->no;
		memcpy(to + done, bytes + skip, have);
		done += have;
		first += count;
		skip = 0;
	}
	return 0;
}

static int
range_joined(
    const struct reduce_plan *p, uint64_t offset, char *to, size_t n, char *scratch, struct err *e)
{
	uint64_t end = offset + n, at = 0;

	for (int i = 0; i < p->n && at < end; at += p->parts[i++].size) {
		uint64_t from = MAX(at, offset), until = MIN(at + p->parts[i].size, end);

		if (from < until && shard_read(&p->parts[i], from - at, to + (from - offset),
					(size_t)(until - from), e) < 0)
			return -e->no;
	}
	return 0;
}

/* Reads elements of a part, each followed by zeros up to this width. */
static int
read_padded(const struct shard *x, size_t width, uint64_t offset, char *to, size_t n, char *scratch,
    struct err *e)
{
	uint64_t own = x->itemsize, end = offset + n;
	uint64_t at = offset / width * own + MIN(offset % width, own);
	uint64_t until = end / width * own + MIN(end % width, own);

	memset(to, 0, n);
	while (at < until) {
		size_t have = (size_t)MIN(until - at, (uint64_t)SCRATCH);

		if (shard_read(x, at, scratch, have, e) < 0)
			return -e->no;
		for (size_t k = 0, run; k < have; k += run) {
			uint64_t element = (at + k) / own, in = (at + k) % own;

			run = (size_t)MIN(own - in, (uint64_t)(have - k));
			memcpy(to + (element * width + in - offset), scratch + k, run);
		}
		at += have;
	}
	return 0;
}

static int
range_padded(
    const struct reduce_plan *p, uint64_t offset, char *to, size_t n, char *scratch, struct err *e)
{
	uint64_t end = offset + n, at = 0, size;

	for (int i = 0; i < p->n && at < end; i++, at += size) {
		uint64_t from = MAX(at, offset), until;

		size = shard_elements(&p->parts[i], 0) * p->width;
		until = MIN(at + size, end);
		if (from < until &&
		    read_padded(&p->parts[i], p->width, from - at, to + (from - offset),
			(size_t)(until - from), scratch, e) < 0)
			return -e->no;
	}
	return 0;
}

static int
range_same(
    const struct reduce_plan *p, uint64_t offset, char *to, size_t n, char *scratch, struct err *e)
{
	if (shard_read(&p->parts[0], offset, to, n, e) < 0)
		return -e->no;
	for (int i = 1; i < p->n; i++) {
		if (shard_read(&p->parts[i], offset, scratch, n, e) < 0)
			return -e->no;
		if (memcmp(to, scratch, n) != 0)
			return fail(e, ENOTUNIQ, "%s: rank %d has another value than rank %d",
			    p->what, p->parts[i].rank, p->parts[0].rank);
	}
	return 0;
}

static int
make_range(
    const struct reduce_plan *p, uint64_t offset, char *to, size_t n, char *scratch, struct err *e)
{
	if (p->width)
		return range_padded(p, offset, to, n, scratch, e);
	return (p->joined ? range_joined : p->op->range)(p, offset, to, n, scratch, e);
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
    "mean", reduce_plan_numbers, range_numbers, {add_floats, NULL, NULL}, ADDS, MEAN};
const struct reduce_op reduce_sum = {"sum", reduce_plan_numbers, range_numbers,
    {add_floats, add_integers, add_integers}, ADDS, false};
const struct reduce_op reduce_min = {"min", reduce_plan_numbers, range_numbers,
    {min_floats, min_signed, min_unsigned}, false, false};
const struct reduce_op reduce_max = {"max", reduce_plan_numbers, range_numbers,
    {max_floats, max_signed, max_unsigned}, false, false};
const struct reduce_op reduce_gather = {
    "gather", reduce_plan_stack, range_joined, {NULL}, false, false};
const struct reduce_op reduce_cat = {"cat", reduce_plan_join, range_joined, {NULL}, false, false};
const struct reduce_op reduce_same = {"same", reduce_plan_same, range_same, {NULL}, false, false};

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
	int failed;

	r->memfd = -1;
	*p = (struct reduce_plan){.op = op, .what = xstrdup(what), .n = n, .part = part};
	pthread_mutex_init(&r->lock, NULL);
	p->parts = xmalloc((size_t)n * sizeof(*parts));
	memcpy(p->parts, parts, (size_t)n * sizeof(*parts));
	failed = op->plan(p, e);
	if (failed == 0 && p->size > INT64_MAX)
		failed = fail(e, EFBIG, "%s.%s has more than 2^63 bytes", what, op->name);
	if (failed < 0 || open_result(r, e) < 0) {
		reduce_free(r);
		return NULL;
	}
	r->pieces = (p->size + PIECE - 1) / PIECE;
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
make_piece(struct reduction *r, char *to, char *scratch)
{
	struct err e = {0};
	uint64_t k = atomic_load(&r->stop) ? r->pieces : atomic_fetch_add(&r->next, 1);
	uint64_t offset = k * PIECE;
	size_t n;

	if (k >= r->pieces)
		return false;
	n = (size_t)MIN(r->plan.size - offset, (uint64_t)PIECE);
	if (make_range(&r->plan, offset, to, n, scratch, &e) == 0 && r->memfd >= 0 &&
	    pwrite_all("reduce.write", r->memfd, to, n, offset) < n)
		fail_errno(&e, "%s.%s: no room for the result", r->plan.what, r->plan.op->name);
	if (e.no)
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

	if (make_piece(r, w->to, w->scratch)) {
		copy_call(work, w);
		return;
	}
	free(w->to);
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
	char *to = xmalloc(PIECE), *scratch = xmalloc(SCRATCH);

	while (make_piece(r, to, scratch))
		;
	free(to);
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
	if (r->plan.width && r->plan.size > PADDED_MAX && r->plan.size / 4 > bytes) {
		fail(&r->err, EFBIG,
		    "%s.%s: its strings, padded to the longest, are %llu bytes: read %s.%s.npy",
		    r->plan.what, r->plan.op->name, (unsigned long long)r->plan.size, r->plan.what,
		    r->plan.op->name);
		fn(arg, &r->err);
		return;
	}
	if (bytes < AT_ONCE) {
		run_here(r);
		return;
	}
	r->loop = l;
	r->done = (struct loop_call){.fn = on_done, .arg = r};
	atomic_store(&r->workers, WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = xmalloc(sizeof(*w));

		*w = (struct worker){r, xmalloc(PIECE), xmalloc(SCRATCH)};
		copy_call(work, w);
	}
}

void
reduce_cancel(struct reduction *r)
{
	static const struct err cancelled = {ECANCELED, "no longer wanted"};

	stop_with(r, &cancelled);
}

/* ---- ranges that are made when they are read ---- */

/* A range that several copy threads make, a share each time. */
struct shared {
	const struct reduce_plan *plan;
	uint64_t offset;
	char *to;
	size_t n, begun; /* bytes */
	int users;	 /* threads that know of it, or will */
	int busy;	 /* those that make a share */
	int failed;	 /* -errno; 0: not yet */
	pthread_mutex_t lock;
	pthread_cond_t idle;
};

/* Makes shares until all are begun. Whoever asked for the range also waits until they are made:
 * helpers that come later touch nothing of it. Returns failed. */
static int
make_shares(struct shared *s, bool asked)
{
	char *scratch = NULL;
	bool last;
	int failed;

	pthread_mutex_lock(&s->lock);
	while (s->begun < s->n && !s->failed) {
		size_t at = s->begun, n = MIN(s->n - at, (size_t)SHARE);
		struct err e;
		int r;

		s->begun += n;
		s->busy++;
		pthread_mutex_unlock(&s->lock);
		scratch = scratch ? scratch : xmalloc(SCRATCH);
		r = make_range(s->plan, s->offset + at, s->to + at, n, scratch, &e);
		pthread_mutex_lock(&s->lock);
		s->failed = s->failed ? s->failed : r;
		if (--s->busy == 0)
			pthread_cond_signal(&s->idle);
	}
	while (asked && s->busy > 0)
		pthread_cond_wait(&s->idle, &s->lock);
	failed = s->failed;
	last = --s->users == 0;
	pthread_mutex_unlock(&s->lock);
	free(scratch);
	if (last) {
		pthread_cond_destroy(&s->idle);
		pthread_mutex_destroy(&s->lock);
		free(s);
	}
	return failed;
}

static void
help(void *arg)
{
	make_shares(arg, false);
}

static ssize_t
make_read(struct maker *m, uint64_t offset, char *p, size_t n)
{
	const struct reduction *r = (const struct reduction *)m;
	struct shared *s;
	struct err e;
	int failed, helpers;

	n = offset < r->plan.size ? (size_t)MIN(r->plan.size - offset, (uint64_t)n) : 0;
	if (r->plan.joined && !r->plan.width) {
		failed = range_joined(&r->plan, offset, p, n, NULL, &e);
		return failed < 0 ? failed : (ssize_t)n;
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct shared){.plan = &r->plan, .offset = offset, .to = p, .n = n, .users = 1};
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->idle, NULL);
	/* one thread stays free: a part may map a file whose read then needs it */
	helpers = MIN(copy_idle() - 1, HELPERS);
	for (size_t begun = SHARE; begun < n && s->users <= helpers; begun += SHARE)
		s->users++;
	for (int i = s->users; i > 1; i--)
		copy_call(help, s);
	failed = make_shares(s, true);
	return failed < 0 ? failed : (ssize_t)n;
}

static void
on_unused(struct maker *m)
{
	struct reduction *r = (struct reduction *)m;

	loop_post(r->loop, &r->done);
}

bool
reduce_is_data(const struct reduction *r)
{
	return r->plan.op != &reduce_same && !shard_is_object(&r->plan.parts[0]);
}

uint64_t
reduce_size(const struct reduction *r)
{
	return r->plan.size;
}

struct maker *
reduce_maker(struct reduction *r, struct loop *l, reduce_fn *fn, void *arg)
{
	close(r->memfd);
	r->memfd = -1;
	r->fn = fn;
	r->arg = arg;
	r->loop = l;
	r->done = (struct loop_call){.fn = on_done, .arg = r};
	r->maker = (struct maker){.make = make_read, .unused = on_unused, .users = 1};
	return &r->maker;
}

int
reduce_result(const struct reduction *r)
{
	return r->memfd;
}

int
reduce_take_result(struct reduction *r)
{
	int fd = r->memfd;

	r->memfd = -1;
	return fd;
}

bool
reduce_numbers(const struct reduction *r, const char **op, const char **dtype, uint64_t *numbers)
{
	if (!r->plan.of)
		return false;
	*op = r->plan.op->name;
	*dtype = r->plan.of->name;
	*numbers = r->plan.size / r->plan.out->size;
	return true;
}

const char *
reduce_line(const struct reduction *r)
{
	return r->plan.line;
}
