/* Keeps what had no room in the report of a cell: one entry for each word. */
#include "group/left_out.h"
#include "base/plain.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS_SIZE = 16 };

char *
left_out_file(const char *word, int cell, int rank, bool runs)
{
	static const struct {
		const char *word, *file; /* of the group, about now; NULL: of the cell: */
		const char *of_cell;	 /* NULL: none has it */
	} rows[] = {{"at", NULL, "traceback"}, {"from", NULL, "traceback"},
	    {"note", NULL, "traceback"}, {"same_on", NULL, "traceback"}, {"other", NULL, "error"},
	    {"result", NULL, "result"}, {"straggler", "stall", NULL}, {"pace", "stall", NULL},
	    {"waits", "stall", NULL}, {"stall", "stall", NULL}, {"set", NULL, NULL},
	    {"gone", NULL, NULL}};

	if (strcmp(word, "where") == 0)
		word = rank < 0 ? "stall" : "at";
	if (strcmp(word, "locals") == 0 || strcmp(word, "differs") == 0)
		return rank < 0 ? xstrdup("locals")
				: xasprintf("cells/%d/rank%d/locals", cell, rank);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strcmp(rows[i].word, word) == 0)
			return runs && rows[i].file ? xstrdup(rows[i].file)
			       : rows[i].of_cell ? xasprintf("cells/%d/%s", cell, rows[i].of_cell)
						 : NULL;
	return xasprintf("cells/%d/status", cell);
}

void
left_out_add(struct left_out *l, const char *word, const char *ranks, char *see, int n)
{
	struct buf b = {0};
	int i = 0;

	while (i < l->n && strcmp(l->kind[i].word, word) != 0)
		i++;
	if (i == l->n && i < LEFT_OUT_KINDS) {
		plain_clip(&b, slice_text(ranks ? ranks : ""), RANKS_SIZE, true);
		l->kind[l->n++] = (struct left_out_kind){word, buf_take(&b), see, n};
		return;
	}
	if (i < l->n)
		l->kind[i].n += n;
	free(see);
}

void
left_out_print(const struct left_out_kind *k, struct buf *out)
{
	buf_adds(out, k->word);
	if (*k->ranks)
		buf_addf(out, " of %s", k->ranks);
	if (k->n > 1)
		buf_addf(out, " and %d more", k->n - 1);
}

void
left_out_free(struct left_out *l)
{
	for (int i = 0; i < l->n; i++) {
		free(l->kind[i].ranks);
		free(l->kind[i].see);
	}
}
