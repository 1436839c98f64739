/* Combines all ranks' parts into one object, in pieces that the copy threads take. */
#include "object/reduce.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PIECE = 32 * DTYPE_BLOCK, /* numbers */
	PIECE_BYTES = PIECE * 8,  /* of the widest type; what copying takes at a time */
	SCRATCH = 2 * PIECE_BYTES + (int)sizeof(union block),
	WORKERS = 2,
	AT_ONCE = 64 << 10 /* so many bytes are done without a thread */
};

struct reduction {
	const struct reduce_op *op;
	char *what, *line;
	struct shard *parts;
	int n;
	int (*piece)(struct reduction *r, uint64_t k, char *scratch, struct err *e);
	const struct dtype *in, *out; /* of arithmetic */
	uint64_t total, pieces;	      /* numbers of arithmetic, bytes else */
	int memfd;
	/* while it runs */
	atomic_uint_fast64_t next;
	atomic_int workers;
	atomic_bool stop;
	pthread_mutex_t lock; /* of err */
	struct err err;
	struct loop *loop;
	int done_fd;
	struct watch *done_watch;
	reduce_fn *fn;
	void *arg;
};

struct worker {
	struct reduction *r;
	char *scratch;
};

static const struct source nothing = {.kind = SOURCE_MEMORY, .fd = -1};

static int
write_result(const struct reduction *r, uint64_t offset, const char *p, size_t n, struct err *e)
{
	if (pwrite_all("reduce.write", r->memfd, p, n, offset) < n)
		return fail_errno(e, "%s.%s: no room for the result", r->what, r->op->name);
	return 0;
}

static int piece_bytes(struct reduction *r, uint64_t k, char *scratch, struct err *e);

/* ---- plans: do the parts go together, and what comes out ---- */

/* Types, and extents from this axis on. */
static int
check_alike(const struct reduction *r, int axis, struct err *e)
{
	for (int i = 1; i < r->n; i++) {
		const struct shard *a = &r->parts[0], *p = &r->parts[i];
		struct buf b = {0};

		if (shard_same_type(a, p) && (shard_is_object(a) || shard_same_shape(a, p, axis)))
			continue;
		shard_describe(&b, a);
		buf_adds(&b, ", ");
		shard_describe(&b, p);
		fail(e, EOPNOTSUPP, "%s: %s: %s wants %s", r->what, b.p, r->op->name,
		    axis ? "one type, and shapes that differ in axis 0 at most"
			 : "the same type and shape on all ranks");
		buf_free(&b);
		return -e->no;
	}
	return 0;
}

static void
set_line(struct reduction *r, const struct shard *shape, size_t itemsize, struct slice dtype)
{
	const struct shard *p = &r->parts[0];
	struct buf b = {0};

	buf_addf(&b, "%s %.*s %zu ", r->op->name, (int)p->kind.n, p->kind.p, itemsize);
	shard_add_shape(&b, shape);
	buf_addf(&b, " %.*s", (int)dtype.n, dtype.p);
	r->line = buf_take(&b);
}

/* The parts' bytes one behind the other. */
static void
set_bytes(struct reduction *r, const struct shard *shape)
{
	for (int i = 0; i < r->n; i++)
		r->total += r->parts[i].size;
	r->pieces = (r->total + PIECE_BYTES - 1) / PIECE_BYTES;
	set_line(r, shape, r->parts[0].itemsize, r->parts[0].dtype);
}

/* Python's numbers, lists and the rest are left to Python, which gets all of them. */
static int
plan_objects(struct reduction *r)
{
	struct shard p = {.dims = 1};

	r->piece = piece_bytes;
	for (int i = 0; i < r->n; i++)
		p.shape[0] += r->parts[i].size;
	set_bytes(r, &p);
	return 0;
}

static int
plan_stack(struct reduction *r, struct err *e)
{
	struct shard p = r->parts[0];

	if (check_alike(r, 0, e) < 0)
		return -e->no;
	if (shard_is_object(&p))
		return plan_objects(r);
	if (p.dims == SHARD_DIMS)
		return fail(e, EOPNOTSUPP, "%s has too many axes for one more", r->what);
	memmove(p.shape + 1, p.shape, (size_t)p.dims++ * sizeof(*p.shape));
	p.shape[0] = (uint64_t)r->n;
	set_bytes(r, &p);
	return 0;
}

static int
plan_join(struct reduction *r, struct err *e)
{
	struct shard p = r->parts[0];

	if (check_alike(r, 1, e) < 0)
		return -e->no;
	if (shard_is_object(&p))
		return plan_objects(r);
	if (p.dims == 0)
		return fail(e, EOPNOTSUPP, "%s has no axis that could be joined: read %s.gather",
		    r->what, r->what);
	for (int i = 1; i < r->n; i++)
		p.shape[0] += r->parts[i].shape[0];
	set_bytes(r, &p);
	return 0;
}

static int
plan_numbers(struct reduction *r, struct err *e)
{
	static const struct slice float64 = {"float64", 7}, int64 = {"int64", 5};
	const struct shard *p = &r->parts[0];
	struct slice out = p->dtype;

	if (check_alike(r, 0, e) < 0)
		return -e->no;
	if (shard_is_object(p))
		return plan_objects(r);
	r->in = dtype_find(p->dtype);
	if (!r->in || r->in->size * r->in->reals != p->itemsize)
		return fail(e, EOPNOTSUPP, "%s is %.*s: %s is for numbers; read %s.gather", r->what,
		    (int)p->dtype.n, p->dtype.p, r->op->name, r->what);
	if (r->in->reals > 1 && !r->op->mean && r->op != &reduce_sum)
		return fail(
		    e, EOPNOTSUPP, "%s is %s: complex numbers have no order", r->what, r->in->name);
	if (r->op->mean && r->in->kind != KIND_FLOAT)
		out = float64;
	else if (r->op == &reduce_sum && slice_eq(p->dtype, "bool"))
		out = int64; /* how many are true */
	r->out = dtype_find(out);
	r->total = shard_elements(p, 0) * r->in->reals;
	r->pieces = (r->total + PIECE - 1) / PIECE;
	set_line(r, p, r->out->size * r->out->reals, out);
	return 0;
}

static int
plan_same(struct reduction *r, struct err *e)
{
	for (int i = 1; i < r->n; i++)
		if (r->parts[i].size != r->parts[0].size)
			return fail(e, ENOTUNIQ, "%s: rank %d has another value than rank %d",
			    r->what, r->parts[i].rank, r->parts[0].rank);
	r->total = r->parts[0].size;
	r->pieces = (r->total + PIECE_BYTES - 1) / PIECE_BYTES;
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

static void
fold_part(const struct reduction *r, bool first, union block *acc, union block *spare,
    const char *in, size_t n)
{
	bool floats = r->op->mean && r->in->kind != KIND_FLOAT;
	enum dtype_kind kind = floats ? KIND_FLOAT : r->in->kind;

	for (size_t b = 0; b * DTYPE_BLOCK < n; b++) {
		union block *to = first ? &acc[b] : spare;

		r->in->load(r->in, to, in + b * DTYPE_BLOCK * r->in->size);
		if (floats)
			to_float(to, r->in->kind);
		if (!first)
			r->op->fold[kind](&acc[b], spare);
	}
}

static int
piece_numbers(struct reduction *r, uint64_t k, char *scratch, struct err *e)
{
	union block *acc = (union block *)(void *)scratch;
	char *bytes = scratch + PIECE_BYTES;
	union block *spare = (union block *)(void *)(bytes + PIECE_BYTES);
	uint64_t first = k * PIECE;
	size_t n = (size_t)MIN(r->total - first, (uint64_t)PIECE), have = n * r->in->size;
	size_t blocks = (n + DTYPE_BLOCK - 1) / DTYPE_BLOCK;

	/* whole blocks are computed: nothing undefined in the last one */
	memset(bytes + have, 0, blocks * DTYPE_BLOCK * r->in->size - have);
	for (int i = 0; i < r->n; i++) {
		if (shard_read(&r->parts[i], first * r->in->size, bytes, have, e) < 0)
			return -e->no;
		fold_part(r, i == 0, acc, spare, bytes, n);
	}
	for (size_t b = 0; b < blocks; b++) {
		if (r->op->mean)
			for (int i = 0; i < DTYPE_BLOCK; i++)
				acc[b].f[i] /= r->n;
		r->out->store(r->out, bytes + b * DTYPE_BLOCK * r->out->size, &acc[b]);
	}
	return write_result(r, first * r->out->size, bytes, n * r->out->size, e);
}

static int
piece_bytes(struct reduction *r, uint64_t k, char *scratch, struct err *e)
{
	uint64_t begin = k * PIECE_BYTES, end = MIN(begin + PIECE_BYTES, r->total), at = 0;

	for (int i = 0; i < r->n && at < end; at += r->parts[i++].size) {
		uint64_t from = MAX(at, begin), to = MIN(at + r->parts[i].size, end);

		if (from < to &&
		    (shard_read(&r->parts[i], from - at, scratch, (size_t)(to - from), e) < 0 ||
			write_result(r, from, scratch, (size_t)(to - from), e) < 0))
			return -e->no;
	}
	return 0;
}

static int
piece_same(struct reduction *r, uint64_t k, char *scratch, struct err *e)
{
	uint64_t begin = k * PIECE_BYTES;
	size_t n = (size_t)MIN(r->total - begin, (uint64_t)PIECE_BYTES);
	char *other = scratch + PIECE_BYTES;

	if (shard_read(&r->parts[0], begin, scratch, n, e) < 0)
		return -e->no;
	for (int i = 1; i < r->n; i++) {
		if (shard_read(&r->parts[i], begin, other, n, e) < 0)
			return -e->no;
		if (memcmp(scratch, other, n) != 0)
			return fail(e, ENOTUNIQ, "%s: rank %d has another value than rank %d",
			    r->what, r->parts[i].rank, r->parts[0].rank);
	}
	return 0;
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
FOLD(add_integers, u, a + b) /* wraps, with or without a sign */
/* NaN, once there, stays */
FOLD(min_floats, f, b < a || b != b ? b : a)
FOLD(max_floats, f, b > a || b != b ? b : a)
FOLD(min_signed, i, b < a ? b : a)
FOLD(max_signed, i, b > a ? b : a)
FOLD(min_unsigned, u, b < a ? b : a)
FOLD(max_unsigned, u, b > a ? b : a)

const struct reduce_op reduce_mean = {
    "mean", plan_numbers, piece_numbers, {add_floats, NULL, NULL}, true};
const struct reduce_op reduce_sum = {
    "sum", plan_numbers, piece_numbers, {add_floats, add_integers, add_integers}, false};
const struct reduce_op reduce_min = {
    "min", plan_numbers, piece_numbers, {min_floats, min_signed, min_unsigned}, false};
const struct reduce_op reduce_max = {
    "max", plan_numbers, piece_numbers, {max_floats, max_signed, max_unsigned}, false};
const struct reduce_op reduce_gather = {"gather", plan_stack, piece_bytes, {NULL}, false};
const struct reduce_op reduce_cat = {"cat", plan_join, piece_bytes, {NULL}, false};
const struct reduce_op reduce_same = {"same", plan_same, piece_same, {NULL}, false};

/* ---- running ---- */

struct reduction *
reduce_new(
    const struct reduce_op *op, const char *what, const struct shard *parts, int n, struct err *e)
{
	struct reduction *r = xcalloc(1, sizeof(*r));

	*r = (struct reduction){
	    .op = op, .what = xstrdup(what), .n = n, .piece = op->piece, .memfd = -1};
	pthread_mutex_init(&r->lock, NULL);
	r->parts = xmalloc((size_t)n * sizeof(*parts));
	memcpy(r->parts, parts, (size_t)n * sizeof(*parts));
	if (op->plan(r, e) < 0)
		goto failed;
	if (op == &reduce_same)
		return r;
	if (!fault("reduce.memfd", EMFILE))
		r->memfd = memfd_create("ddipfs-over", MFD_CLOEXEC);
	if (r->memfd >= 0)
		return r;
	fail_errno(e, "memfd_create");
failed:
	reduce_free(r);
	return NULL;
}

void
reduce_free(struct reduction *r)
{
	if (!r)
		return;
	if (r->memfd >= 0)
		close(r->memfd);
	pthread_mutex_destroy(&r->lock);
	free(r->parts);
	free(r->what);
	free(r->line);
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

/* Makes the next piece; false: there is none any more. */
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

/* On a copy thread: one piece, then back to the end of their queue, where others wait too. */
static void
work(void *arg, const char *unused, ssize_t n)
{
	struct worker *w = arg;
	struct reduction *r = w->r;
	uint64_t one = 1;

	if (make_piece(r, w->scratch)) {
		copy_later(&nothing, 0, 0, work, w);
		return;
	}
	free(w->scratch);
	free(w);
	if (atomic_fetch_sub(&r->workers, 1) == 1 &&
	    write(r->done_fd, &one, sizeof(one)) != sizeof(one))
		die("eventfd: %s", strerror(errno));
}

static void
on_done(void *arg, uint32_t events)
{
	struct reduction *r = arg;

	loop_fd_del(r->done_watch);
	close(r->done_fd);
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
	for (int i = 0; i < r->n; i++)
		bytes += r->parts[i].size;
	if (bytes <= AT_ONCE) {
		run_here(r);
		return;
	}
	r->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->done_fd < 0) {
		fail_errno(&r->err, "eventfd");
		fn(arg, &r->err);
		return;
	}
	r->done_watch = loop_fd(l, r->done_fd, EPOLLIN, on_done, r);
	atomic_store(&r->workers, WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = xmalloc(sizeof(*w));

		*w = (struct worker){r, xmalloc(SCRATCH)};
		copy_later(&nothing, 0, 0, work, w);
	}
}

void
reduce_cancel(struct reduction *r)
{
	static const struct err cancelled = {ECANCELED, "nobody waits for it any more"};

	stop_with(r, &cancelled);
}

int
reduce_result(const struct reduction *r)
{
	return r->memfd;
}

const char *
reduce_line(const struct reduction *r)
{
	return r->line;
}
