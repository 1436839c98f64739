/* Sets of equal texts, such as the tracebacks of the ranks of a cell. */
#include "group/alike.h"
#include "group/rank_set.h"
#include <stdlib.h>
#include <string.h>

static int
compare_texts(const void *a, const void *b)
{
	const struct alike *x = a, *y = b;
	int r = strcmp(x->text, y->text);

	return r ? r : (x->i > y->i) - (x->i < y->i);
}

static int
compare_firsts(const void *a, const void *b)
{
	const struct alike *const *x = a, *const *y = b;

	return ((*x)->i > (*y)->i) - ((*x)->i < (*y)->i);
}

int
alike_sets(struct alike *t, int n, struct alike **out)
{
	int sets = 0;

	if (n == 0)
		return 0;
	qsort(t, (size_t)n, sizeof(*t), compare_texts);
	for (int i = 0; i < n; i++) {
		t[i].n = 0;
		if (i == 0 || strcmp(t[i].text, t[i - 1].text) != 0)
			out[sets++] = &t[i];
		out[sets - 1]->n++;
	}
	qsort(out, (size_t)sets, sizeof(struct alike *), compare_firsts);
	return sets;
}

void
alike_ranks(const struct alike *first, const int *ranks, struct buf *out)
{
	struct rank_set set = {0};

	for (int k = 0; k < first->n; k++)
		rank_set_add(&set, ranks[first[k].i]);
	rank_set_print(&set, out);
}
