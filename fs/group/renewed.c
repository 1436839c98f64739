/* Ranks that have been replaced, and have none of the variables that they had. */
#include "group/renewed.h"
#include "group/task.h"
#include "object/var_table.h"
#include <string.h>

enum { SHOWN = 4 }; /* ranks that a notice names */

void
renewed_note(struct rank *k)
{
	size_t n = k->table ? var_table_count(k->table) : 0;

	k->end.replaced = k->g->life.state == G_READY;
	if (k->end.replaced)
		k->end.cell = k->cell ? k->cell : k->g->history.last;
	if (!k->end.replaced || n)
		k->end.names = k->end.replaced ? n : 0;
}

void
renewed_forget(struct rank *k)
{
	k->end.names = 0;
	k->end.replaced = false;
}

/* Appends about one rank. */
static void
add_rank(const struct rank *k, struct buf *out)
{
	size_t had = k->end.names;
	bool none = !k->table || var_table_count(k->table) == 0;

	buf_addf(
	    out, "%srank %d is new since cell %d and ", out->n ? "; " : "", k->number, k->end.cell);
	if (none)
		buf_addf(
		    out, had == 1 ? "lacks its variable" : "has none of its %zu variables", had);
	else
		buf_addf(out, "had %zu variable%s", had, had == 1 ? "" : "s");
}

char *
renewed_notice(struct task *w)
{
	struct buf b = {0};
	int count = 0;

	for (int i = 0; i < w->n; i++) {
		struct rank *k = w->subtasks[i].k;

		if (!k->end.names)
			continue;
		if (++count <= SHOWN)
			add_rank(k, &b);
		k->end.names = 0;
	}
	if (count > SHOWN)
		buf_addf(&b, "; so %s %d more", count == SHOWN + 1 ? "is" : "are", count - SHOWN);
	return count ? buf_take(&b) : NULL;
}
