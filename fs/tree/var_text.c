/*
 * `names`, the table of variables for people: a line for each name, merged from the ranks' tables.
 */
#include "tree/var_text.h"
#include "group/group.h"
#include "object/var_table.h"
#include <string.h>

/* One of the tables, which several ranks may share, and how far it is told. */
struct source_table {
	const struct var_table *table;
	size_t at;
	bool now; /* has the name that is told now */
};

struct merge {
	const struct group *g;
	struct source_table tables[MAX_RANKS];
	int n;
	int table_of[MAX_RANKS]; /* of each rank */
};

static void
merge_begin(struct merge *m, const struct group *g)
{
	*m = (struct merge){.g = g};
	for (int k = 0; k < g->size; k++) {
		int i = 0;

		while (i < m->n && m->tables[i].table != g->ranks[k].table)
			i++;
		if (i == m->n)
			m->tables[m->n++].table = g->ranks[k].table;
		m->table_of[k] = i;
	}
}

static int
compare(struct slice a, struct slice b)
{
	int d = memcmp(a.p, b.p, MIN(a.n, b.n));

	return d ? d : (a.n > b.n) - (a.n < b.n);
}

/* The row of the next name, of the first rank that has it; p NULL: no more. */
static struct slice
merge_next(struct merge *m)
{
	struct slice least = {NULL, 0}, row = {NULL, 0};

	for (int i = 0; i < m->n; i++) {
		struct source_table *t = &m->tables[i];
		struct slice name;
		int d;

		t->at += t->now;
		t->now = false;
		if (t->at == var_table_count(t->table))
			continue;
		name = var_table_name(t->table, t->at);
		d = least.p ? compare(name, least) : -1;
		t->now = d <= 0;
		if (d >= 0)
			continue;
		for (int j = 0; j < i; j++)
			m->tables[j].now = false;
		least = name;
		row = var_table_row(t->table, t->at);
	}
	return row;
}

static void
add_row(struct slice row, struct buf *out)
{
	static const char *const keys[VAR_COLUMNS] = {
	    "", " type=", " dtype=", " shape=", " bytes=", " device="};
	const char *p = row.p, *end = row.p + row.n;

	for (size_t i = 0; i < ARRAY_LEN(keys) && p <= end; i++) {
		const char *tab = memchr(p, '\t', (size_t)(end - p));
		const char *stop = tab ? tab : end;

		buf_adds(out, keys[i]);
		buf_add(out, p, (size_t)(stop - p));
		p = stop + 1;
	}
}

/* Which ranks have it, unless all do. */
static void
add_ranks(const struct merge *m, struct buf *out)
{
	const char *sep = " ranks=";
	bool all = true;

	for (int i = 0; i < m->n; i++)
		all &= m->tables[i].now;
	for (int k = 0; k < m->g->size && !all; k++)
		if (m->tables[m->table_of[k]].now) {
			buf_addf(out, "%s%d", sep, k);
			sep = ",";
		}
}

int
var_text_names(const struct place *at, struct buf *out, struct err *e)
{
	struct merge m;
	struct slice row;

	merge_begin(&m, at->g);
	while ((row = merge_next(&m)).p) {
		add_row(row, out);
		add_ranks(&m, out);
		buf_addc(out, '\n');
	}
	return 0;
}
