/*
 * `names`, the human-readable table of variables: a line for each name, merged from the ranks'
 * tables.
 */
#include "tree/var_text.h"
#include "base/daemon.h"
#include "group/group.h"
#include "object/var_table.h"
#include "tree/running_names.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 2000 }; /* rows per turn: half a millisecond */

/* One of the tables, which several ranks may share, and the position in it. */
struct source_table {
	struct var_table *table; /* referenced */
	size_t at;
	bool now; /* has the current name */
};

/* The tables as they were at open. */
struct merge {
	struct source_table *tables;
	int n;
	int *table_of; /* index for each rank */
	int ranks;
};

static void
merge_begin(struct merge *m, const struct group *g)
{
	*m = (struct merge){.ranks = g->size};
	m->tables = xcalloc((size_t)g->size + 1, sizeof(*m->tables));
	m->table_of = xcalloc((size_t)g->size + 1, sizeof(*m->table_of));
	for (int k = 0; k < g->size; k++) {
		int i = 0;

		while (i < m->n && m->tables[i].table != g->ranks[k].table)
			i++;
		if (i == m->n)
			m->tables[m->n++].table = var_table_ref(g->ranks[k].table);
		m->table_of[k] = i;
	}
}

static void
merge_end(struct merge *m)
{
	for (int i = 0; i < m->n; i++)
		var_table_unref(m->tables[i].table);
	free(m->tables);
	free(m->table_of);
}

static int
compare(struct slice a, struct slice b)
{
	int d = memcmp(a.p, b.p, MIN(a.n, b.n));

	return d ? d : (a.n > b.n) - (a.n < b.n);
}

/* The row of the next name, from the first rank that has it; p is NULL at the end. */
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

/* Lists the ranks that have the name, unless all do. */
static void
add_ranks(const struct merge *m, struct buf *out)
{
	const char *sep = " ranks=";
	bool all = true;

	for (int i = 0; i < m->n; i++)
		all &= m->tables[i].now;
	for (int k = 0; k < m->ranks && !all; k++)
		if (m->tables[m->table_of[k]].now) {
			buf_addf(out, "%s%d", sep, k);
			sep = ",";
		}
}

/* An open in progress that generates the text. */
struct making {
	struct file *f;
	struct req *r;		     /* the pending open */
	struct running_names *asked; /* ranks that run a cell; NULL: they have answered */
	struct merge merge;
	struct timer *next; /* of the next piece */
};

/* Returns false if that was the last piece. */
static bool
make_piece(struct making *m)
{
	struct buf *out = &m->f->text;

	for (int i = 0; i < PIECE; i++) {
		struct slice row = merge_next(&m->merge);

		if (!row.p)
			return false;
		add_row(row, out);
		add_ranks(&m->merge, out);
		buf_addc(out, '\n');
	}
	return true;
}

static void
making_free(struct making *m)
{
	m->f->state = NULL;
	if (m->asked)
		running_names_cancel(m->asked);
	loop_timer_del(m->next);
	merge_end(&m->merge);
	free(m);
}

static void
go_on(void *arg)
{
	struct making *m = arg;
	struct req *r = m->r;

	m->next = NULL;
	if (make_piece(m)) {
		m->next = loop_timer(daemon_.loop, 0, go_on, m);
		return;
	}
	making_free(m);
	req_done(r, 0);
}

/* All ranks that can have reported their variables. */
static void
begin(void *arg)
{
	struct making *m = arg;

	m->asked = NULL;
	merge_begin(&m->merge, m->f->node->at.g);
	go_on(m);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	making_free(r->waits_for);
	req_done(r, -EINTR);
}

static int
names_open(struct file *f, struct req *r)
{
	struct making *m = xcalloc(1, sizeof(*m));

	m->f = f;
	m->r = r;
	f->state = m;
	r->waits_for = m;
	m->asked = running_names_ask(f->node->at.g, -1, begin, m);
	if (m->asked)
		return req_park(r, interrupted);
	merge_begin(&m->merge, f->node->at.g);
	if (!make_piece(m)) {
		making_free(m);
		return 0;
	}
	m->next = loop_timer(daemon_.loop, 0, go_on, m);
	return req_park(r, interrupted);
}

/* state is set only if the session ended while the open was in progress. */
static void
names_release(struct file *f)
{
	if (f->state)
		making_free(f->state);
}

const struct file_ops var_text_names_ops = {.open = names_open, .release = names_release};
