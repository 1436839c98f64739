/* Compares the types and shapes of parts, and determines those of the result. */
#include "reduce_plan.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
reduce_plan_free(struct reduce_plan *p)
{
	free(p->parts);
	free(p->what);
	free(p->line);
	free(p->in);
}

/* Compares types, and extents from this axis on. Strings may have any length if there is no
 * arithmetic. */
static int
check_alike(const struct reduce_plan *p, int axis, struct err *e)
{
	for (int i = 1; i < p->n; i++) {
		const struct shard *a = &p->parts[0], *x = &p->parts[i];
		bool type =
		    shard_same_type(a, x) || (!p->op->fold[KIND_FLOAT] && shard_both_strings(a, x));
		struct buf b = {0};

		if (type && (shard_is_object(a) || shard_same_shape(a, x, axis)))
			continue;
		shard_describe(&b, a);
		buf_adds(&b, ", ");
		shard_describe(&b, x);
		fail(e, EOPNOTSUPP, "%s: %s: %s wants %s", p->what, b.p, p->op->name,
		    axis ? "one type, and shapes that differ in axis 0 at most"
			 : "the same type and shape on all ranks");
		buf_free(&b);
		return -e->no;
	}
	return 0;
}

static void
set_line(struct reduce_plan *p, const struct shard *shape, size_t itemsize, struct slice dtype)
{
	const struct shard *first = &p->parts[0];
	struct buf b = {0};

	for (int i = 0; i < p->n; i++)
		p->ranks += p->parts[i].ranks;
	if (p->part)
		shard_add_origin(&b, p->ranks, first->of);
	else
		buf_addf(&b, "%s ", p->op->name);
	buf_addf(&b, "%.*s %zu ", (int)first->kind.n, first->kind.p, itemsize);
	shard_add_shape(&b, shape);
	buf_addf(&b, " %.*s%s", (int)dtype.n, dtype.p, p->part ? "\n" : "");
	p->line = buf_take(&b);
}

/* Sums and products are UINT64_MAX if they would be more: reduce.c refuses such sizes. */
static uint64_t
plus(uint64_t a, uint64_t b)
{
	return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static uint64_t
times(uint64_t a, uint64_t b)
{
	return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}

/* The result is the parts' bytes, concatenated; strings are padded to the longest. */
static int
set_bytes(struct reduce_plan *p, const struct shard *shape, struct err *e)
{
	const struct shard *first = &p->parts[0], *widest = first;

	p->joined = true;
	for (int i = 1; i < p->n; i++) {
		const struct shard *x = &p->parts[i];

		if (x->itemsize != first->itemsize && !shard_both_strings(first, x))
			return fail(e, EBADMSG,
			    "%s: the elements of rank %d have %zu bytes, of rank %d %zu", p->what,
			    first->rank, first->itemsize, x->rank, x->itemsize);
		if (x->itemsize > widest->itemsize)
			widest = x;
		if (x->itemsize != first->itemsize)
			p->width = widest->itemsize;
	}
	for (int i = 0; i < p->n; i++) {
		const struct shard *x = &p->parts[i];

		p->size = plus(p->size, p->width ? times(shard_elements(x, 0), p->width) : x->size);
	}
	set_line(p, shape, widest->itemsize, widest->dtype);
	return 0;
}

/* Python's numbers, lists and other objects are left to Python, which gets them all. */
static int
plan_objects(struct reduce_plan *p, struct err *e)
{
	struct shard shape = {.dims = 1};

	for (int i = 0; i < p->n; i++)
		shape.shape[0] = plus(shape.shape[0], p->parts[i].size);
	return set_bytes(p, &shape, e);
}

int
reduce_plan_stack(struct reduce_plan *p, struct err *e)
{
	struct shard shape = p->parts[0];

	if (check_alike(p, 0, e) < 0)
		return -e->no;
	if (shard_is_object(&shape))
		return plan_objects(p, e);
	if (shape.dims == SHARD_DIMS)
		return fail(e, EOPNOTSUPP, "%s has too many axes for one more", p->what);
	memmove(shape.shape + 1, shape.shape, (size_t)shape.dims++ * sizeof(*shape.shape));
	shape.shape[0] = (uint64_t)p->n;
	return set_bytes(p, &shape, e);
}

int
reduce_plan_join(struct reduce_plan *p, struct err *e)
{
	struct shard shape = p->parts[0];

	if (check_alike(p, 1, e) < 0)
		return -e->no;
	if (shard_is_object(&shape))
		return plan_objects(p, e);
	if (shape.dims == 0)
		return fail(e, EOPNOTSUPP, "%s has no axis that could be joined: read %s.gather",
		    p->what, p->what);
	for (int i = 1; i < p->n; i++)
		shape.shape[0] = plus(shape.shape[0], p->parts[i].shape[0]);
	return set_bytes(p, &shape, e);
}

/* The type of sums that do not yet include all ranks, so that they are rounded only once, at the
 * end. */
static struct slice
wide_type(const struct reduce_plan *p, struct slice out)
{
	const struct dtype *d = dtype_find(out);

	if (!p->part || !p->op->adds || d->kind != KIND_FLOAT)
		return out;
	return slice_text(d->reals > 1 ? "complex128" : "float64");
}

/* Sets the types of the parts' bytes. A part of several ranks may have a different type than its
 * object. */
static int
set_types(struct reduce_plan *p, struct err *e)
{
	const struct shard *first = &p->parts[0];

	p->of = dtype_find(first->of);
	p->in = xcalloc((size_t)p->n, sizeof(struct dtype *));
	for (int i = 0; p->of && i < p->n; i++) {
		const struct dtype *d = dtype_find(p->parts[i].dtype);

		if (!d || d->reals != p->of->reals || d->size * d->reals != p->parts[i].itemsize)
			p->of = NULL;
		p->in[i] = d;
	}
	if (p->of)
		return 0;
	return fail(e, EOPNOTSUPP, "%s is %.*s: there is no %s of that type; read %s.gather",
	    p->what, (int)first->of.n, first->of.p, p->op->name, p->what);
}

int
reduce_plan_numbers(struct reduce_plan *p, struct err *e)
{
	const struct shard *first = &p->parts[0];
	struct slice out = first->of;

	if (check_alike(p, 0, e) < 0)
		return -e->no;
	if (shard_is_object(first))
		return plan_objects(p, e);
	if (set_types(p, e) < 0)
		return -e->no;
	if (p->of->reals > 1 && !p->op->adds)
		return fail(
		    e, EOPNOTSUPP, "%s is %s: complex numbers have no order", p->what, p->of->name);
	if (p->op->mean && p->of->kind != KIND_FLOAT)
		out = slice_text("float64");
	else if (p->op->adds && slice_eq(first->of, "bool"))
		out = slice_text("int64"); /* the number of true elements */
	out = wide_type(p, out);
	p->out = dtype_find(out);
	p->size = times(shard_elements(first, 0), p->out->reals * p->out->size);
	set_line(p, first, p->out->size * p->out->reals, out);
	return 0;
}

int
reduce_plan_same(struct reduce_plan *p, struct err *e)
{
	for (int i = 1; i < p->n; i++)
		if (p->parts[i].size != p->parts[0].size)
			return fail(e, ENOTUNIQ, "%s: rank %d has another value than rank %d",
			    p->what, p->parts[i].rank, p->parts[0].rank);
	p->size = p->parts[0].size;
	if (p->part)
		p->line = xstrdup("");
	return 0;
}
