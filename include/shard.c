/*
 * A rank's part of an object over all ranks: parses its first lines, reads its bytes, compares it
 * with another.
 */
#include "shard.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ORIGIN "part" /* a part of several ranks */

static bool
take_word(struct slice *line, struct slice *word)
{
	const char *space = memchr(line->p, ' ', line->n);

	if (!space)
		return false;
	*word = (struct slice){line->p, (size_t)(space - line->p)};
	line->n -= word->n + 1;
	line->p = space + 1;
	return true;
}

static bool
take_line(struct slice *text, struct slice *line)
{
	const char *end = text->n ? memchr(text->p, '\n', text->n) : NULL;

	if (!end)
		return false;
	*line = (struct slice){text->p, (size_t)(end - text->p)};
	text->n -= line->n + 1;
	text->p = end + 1;
	return true;
}

void
shard_add_origin(struct buf *b, int ranks, struct slice of)
{
	buf_addf(b, ORIGIN " %d %.*s\n", ranks, (int)of.n, of.p);
}

/* Numbers separated by commas; `-`: none. */
static bool
take_shape(struct shard *p, struct slice text)
{
	const char *s = text.p, *end = text.p + text.n;

	p->dims = 0;
	if (slice_eq(text, "-"))
		return true;
	while (p->dims < SHARD_DIMS) {
		char *next;

		p->shape[p->dims++] = strtoull(s, &next, 10);
		if (next == s || next > end)
			return false;
		if (next == end)
			return true;
		if (*next != ',')
			return false;
		s = next + 1;
	}
	return false;
}

uint64_t
shard_elements(const struct shard *p, int axis)
{
	uint64_t n = 1;

	for (; axis < p->dims; axis++)
		n *= p->shape[axis];
	return n;
}

/* Are these the bytes of its elements, and not too many to count? */
static bool
has_bytes(const struct shard *p, uint64_t size)
{
	uint64_t elements = 1, bytes;

	for (int i = 0; i < p->dims; i++)
		if (__builtin_mul_overflow(elements, p->shape[i], &elements))
			return false;
	return !__builtin_mul_overflow(elements, (uint64_t)p->itemsize, &bytes) && bytes == size &&
	       MAX(elements, bytes) <= INT64_MAX;
}

int
shard_parse(struct shard *p, int rank, const struct source *source, uint64_t size, struct err *e)
{
	struct slice head = {source->head, source->head_n}, line, word, width, shape;
	bool good = take_line(&head, &line), several;

	*p = (struct shard){.rank = rank, .source = *source, .ranks = 1};
	several = good && take_word(&line, &p->kind) && slice_eq(p->kind, ORIGIN);
	if (several) {
		good = take_word(&line, &word);
		p->ranks = good ? atoi(word.p) : 0;
		p->of = line;
		good =
		    good && p->ranks > 0 && take_line(&head, &line) && take_word(&line, &p->kind);
	}
	if (!good || !take_word(&line, &width) || !take_word(&line, &shape) ||
	    !take_shape(p, shape))
		return fail(e, EBADMSG, "rank %d does not say what its part is", rank);
	p->itemsize = strtoul(width.p, NULL, 10);
	p->dtype = line;
	if (!several)
		p->of = line;
	p->at = (uint64_t)(head.p - source->head);
	p->size = size - p->at;
	if (size < p->at || !has_bytes(p, p->size))
		return fail(e, EBADMSG, "rank %d's part is not as long as it says", rank);
	return 0;
}

void
shard_raw(struct shard *p, int rank, const struct source *source, uint64_t size)
{
	*p = (struct shard){.rank = rank,
	    .source = *source,
	    .size = size,
	    .ranks = 1,
	    .of = {"bytes", 5},
	    .kind = {"object", 6},
	    .itemsize = 1,
	    .dims = 1,
	    .shape = {size},
	    .dtype = {"bytes", 5}};
}

int
shard_read(const struct shard *p, uint64_t offset, char *to, size_t n, struct err *e)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = source_copy(&p->source, p->at + offset + done, to + done, n - done);

		if (k <= 0)
			return fail(e, k == -ESRCH || k == 0 ? EHOSTDOWN : (int)-k,
			    "rank %d's object disappeared while it was read", p->rank);
		done += (size_t)k;
	}
	return 0;
}

void
shard_add_shape(struct buf *b, const struct shard *p)
{
	if (p->dims == 0)
		buf_addc(b, '-');
	for (int i = 0; i < p->dims; i++)
		buf_addf(b, "%s%llu", i ? "," : "", (unsigned long long)p->shape[i]);
}

void
shard_describe(struct buf *b, const struct shard *p)
{
	buf_addf(
	    b, "rank %d has %.*s %.*s", p->rank, (int)p->kind.n, p->kind.p, (int)p->of.n, p->of.p);
	if (slice_eq(p->kind, "object"))
		return;
	buf_adds(b, " of shape ");
	shard_add_shape(b, p);
}

bool
shard_is_object(const struct shard *p)
{
	return slice_eq(p->kind, "object");
}

bool
shard_same_type(const struct shard *a, const struct shard *b)
{
	return shard_is_object(a) == shard_is_object(b) &&
	       (shard_is_object(a) ||
		   (a->of.n == b->of.n && memcmp(a->of.p, b->of.p, a->of.n) == 0));
}

bool
shard_both_strings(const struct shard *a, const struct shard *b)
{
	/* '<U12' or '|S3', in quotes */
	return a->of.n > 3 && b->of.n > 3 && memcmp(a->of.p, b->of.p, 3) == 0 &&
	       a->of.p[0] == '\'' && (a->of.p[2] == 'U' || a->of.p[2] == 'S');
}

bool
shard_same_shape(const struct shard *a, const struct shard *b, int axis)
{
	bool same = a->dims == b->dims;

	for (; same && axis < a->dims; axis++)
		same = a->shape[axis] == b->shape[axis];
	return same;
}
