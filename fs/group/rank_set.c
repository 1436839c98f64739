/* Sets of ranks: a bit for each; parses and prints their lists. */
#include "group/rank_set.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t one = 1;

void
rank_set_add(struct rank_set *s, int rank)
{
	s->word[rank / RANK_SET_BITS] |= one << rank % RANK_SET_BITS;
}

bool
rank_set_has(const struct rank_set *s, int rank)
{
	return s->word[rank / RANK_SET_BITS] >> rank % RANK_SET_BITS & 1;
}

bool
rank_set_empty(const struct rank_set *s)
{
	return rank_set_next(s, 0) < 0;
}

int
rank_set_count(const struct rank_set *s)
{
	int n = 0;

	for (size_t i = 0; i < ARRAY_LEN(s->word); i++)
		if (s->word[i]) /* most are 0, and counting is a call */
			n += __builtin_popcountll(s->word[i]);
	return n;
}

int
rank_set_next(const struct rank_set *s, int from)
{
	uint64_t skipped = from % RANK_SET_BITS ? (one << from % RANK_SET_BITS) - 1 : 0;

	for (size_t i = (size_t)from / RANK_SET_BITS; i < ARRAY_LEN(s->word); i++, skipped = 0)
		if (s->word[i] & ~skipped)
			return (int)i * RANK_SET_BITS + __builtin_ctzll(s->word[i] & ~skipped);
	return -1;
}

/* Parses "2" or "0-3" at *s and advances *s past it. Returns false if there is neither. */
static bool
take_range(const char **s, long *from, long *to)
{
	char *end;

	if (**s < '0' || **s > '9')
		return false;
	*from = *to = strtol(*s, &end, 10);
	if (*end == '-') {
		if (end[1] < '0' || end[1] > '9')
			return false;
		*to = strtol(end + 1, &end, 10);
	}
	*s = end;
	return *from <= *to;
}

/* Adds the ranks of one list. Returns 0, or -EINVAL with *e set. */
static int
add_list(struct rank_set *s, const char *list, int size, struct err *e)
{
	const char *p = list;
	long from, to;

	for (;;) {
		if (!take_range(&p, &from, &to) || to >= size || (*p && *p != ','))
			return fail(e, EINVAL, "ranks: want e.g. 0,2-3 out of 0..%d, not '%.80s'",
			    size - 1, list);
		for (; from <= to; from++)
			rank_set_add(s, (int)from);
		if (!*p++)
			return 0;
	}
}

int
rank_set_parse(struct rank_set *s, char **list, int n, int size, struct err *e)
{
	*s = (struct rank_set){0};
	for (int i = 0; i < n; i++)
		if (add_list(s, list[i], size, e) < 0)
			return -e->no;
	return 0;
}

/* Appends so many stretches of the list. Returns whether it has more. */
static bool
print_stretches(const struct rank_set *s, int most, struct buf *out)
{
	const char *sep = "";

	for (int from = rank_set_next(s, 0), to; from >= 0; from = rank_set_next(s, to + 1)) {
		if (most-- == 0)
			return true;
		for (to = from; to + 1 < MAX_RANKS && rank_set_has(s, to + 1); to++)
			;
		buf_addf(out,
		    to > from + 1 ? "%s%d-%d"
		    : to > from	  ? "%s%d,%d"
				  : "%s%d",
		    sep, from, to);
		sep = ",";
	}
	return false;
}

void
rank_set_print(const struct rank_set *s, struct buf *out)
{
	print_stretches(s, MAX_RANKS, out);
}

int
rank_set_name(const struct rank_set *s, struct buf *out)
{
	enum { STRETCHES = 4 };

	int n = rank_set_count(s);

	buf_adds(out, n > 1 ? "ranks " : "rank ");
	if (print_stretches(s, STRETCHES, out))
		buf_adds(out, ",…");
	return n;
}

bool
rank_list_has(const char *list, int rank)
{
	long from, to;

	for (const char *p = list; take_range(&p, &from, &to); p++) {
		if (rank >= from && rank <= to)
			return true;
		if (*p != ',')
			return false;
	}
	return false;
}
