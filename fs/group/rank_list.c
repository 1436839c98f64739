/* Parses lists of ranks, such as 0,2-3. */
#include "group/rank_list.h"
#include <errno.h>
#include <stdlib.h>

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

/* Marks the ranks of one list. Returns 0, or -EINVAL with *e set. */
static int
mark(const char *s, int size, bool seen[MAX_RANKS], struct err *e)
{
	const char *p = s;
	long from, to;

	for (;;) {
		if (!take_range(&p, &from, &to) || to >= size || (*p && *p != ','))
			return fail(e, EINVAL, "ranks: want e.g. 0,2-3 out of 0..%d, not '%.80s'",
			    size - 1, s);
		for (; from <= to; from++)
			seen[from] = true;
		if (!*p++)
			return 0;
	}
}

int
rank_list_words(char **word, int n, int size, int *ranks, struct err *e)
{
	bool seen[MAX_RANKS] = {false};
	int count = 0, r;

	for (int i = 0; i < n; i++)
		if ((r = mark(word[i], size, seen, e)) < 0)
			return r;
	for (int i = 0; i < size; i++)
		if (seen[i])
			ranks[count++] = i;
	return count;
}

int
rank_list(const char *s, int size, int *ranks, struct err *e)
{
	char *word = xstrdup(s);
	int n = rank_list_words(&word, 1, size, ranks, e);

	free(word);
	return n;
}

bool
rank_list_has(const char *s, int rank)
{
	long from, to;

	for (; take_range(&s, &from, &to); s++) {
		if (rank >= from && rank <= to)
			return true;
		if (*s != ',')
			return false;
	}
	return false;
}
