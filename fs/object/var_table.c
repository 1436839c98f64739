/*
 * Tables of variables: offsets into the text that a rank reported, sorted by name. Knows no ranks.
 */
#include "object/var_table.h"
#include "object/varname.h"
#include <stdlib.h>
#include <string.h>

struct row {
	uint32_t at, n, name_n; /* in the text; n without the newline */
};

struct var_table {
	int refs;
	struct slice text; /* owned */
	struct row *rows;
	size_t n;
};

static int
compare(struct slice a, struct slice b)
{
	int d = memcmp(a.p, b.p, MIN(a.n, b.n));

	return d ? d : (a.n > b.n) - (a.n < b.n);
}

static struct slice
name_of(const struct var_table *t, const struct row *r)
{
	return (struct slice){t->text.p + r->at, r->name_n};
}

static int
compare_rows(const void *a, const void *b, void *table)
{
	return compare(name_of(table, a), name_of(table, b));
}

/* Engines report sorted tables; an unsorted one is handled all the same. */
static void
sort(struct var_table *t)
{
	size_t i = 1, kept = 0;

	while (i < t->n && compare_rows(&t->rows[i - 1], &t->rows[i], t) < 0)
		i++;
	if (i >= t->n)
		return;
	qsort_r(t->rows, t->n, sizeof(*t->rows), compare_rows, t);
	for (i = 0; i < t->n; i++)
		if (i == 0 || compare_rows(&t->rows[kept - 1], &t->rows[i], t) < 0)
			t->rows[kept++] = t->rows[i];
	t->n = kept;
}

static void
parse(struct var_table *t)
{
	const char *end = t->text.p + t->text.n;
	size_t capacity = 0;

	for (const char *p = t->text.p, *next; p < end; p = next) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		const char *stop = newline ? newline : end;
		const char *tab = memchr(p, '\t', (size_t)(stop - p));
		struct slice name = {p, (size_t)((tab ? tab : stop) - p)};

		next = stop + (newline != NULL);
		if (!var_is_name(name))
			continue;
		if (t->n == capacity) {
			capacity = MAX(capacity * 2, (size_t)64);
			t->rows = xrealloc(t->rows, capacity * sizeof(*t->rows));
		}
		t->rows[t->n++] =
		    (struct row){(uint32_t)(p - t->text.p), (uint32_t)(stop - p), (uint32_t)name.n};
	}
}

struct var_table *
var_table_new(struct slice text)
{
	struct var_table *t = xcalloc(1, sizeof(*t));

	*t = (struct var_table){.refs = 1, .text = {slice_dup(text), text.n}};
	parse(t);
	sort(t);
	return t;
}

struct var_table *
var_table_ref(struct var_table *t)
{
	t->refs++;
	return t;
}

void
var_table_unref(struct var_table *t)
{
	if (!t || --t->refs > 0)
		return;
	free((void *)(uintptr_t)t->text.p);
	free(t->rows);
	free(t);
}

bool
var_table_is(const struct var_table *t, struct slice text)
{
	return t->text.n == text.n && (text.n == 0 || memcmp(t->text.p, text.p, text.n) == 0);
}

size_t
var_table_count(const struct var_table *t)
{
	return t->n;
}

struct slice
var_table_row(const struct var_table *t, size_t i)
{
	return (struct slice){t->text.p + t->rows[i].at, t->rows[i].n};
}

struct slice
var_table_name(const struct var_table *t, size_t i)
{
	return name_of(t, &t->rows[i]);
}

struct slice
var_table_find(const struct var_table *t, const char *name)
{
	struct slice want = {name, strlen(name)};
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int d = compare(name_of(t, &t->rows[middle]), want);

		if (d == 0)
			return var_table_row(t, middle);
		if (d < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return (struct slice){NULL, 0};
}

struct slice
var_row_column(struct slice row, enum var_column column)
{
	const char *p = row.p, *end = row.p + row.n, *tab;

	for (int i = 0;; i++) {
		tab = memchr(p, '\t', (size_t)(end - p));
		if (i == (int)column)
			return (struct slice){p, (size_t)((tab ? tab : end) - p)};
		if (!tab)
			return (struct slice){end, 0};
		p = tab + 1;
	}
}

size_t
var_table_diff(
    const struct var_table *a, const struct var_table *b, var_table_diff_fn *fn, void *arg)
{
	size_t i = 0, j = 0, n = 0;

	while (i < a->n || j < b->n) {
		int d = i == a->n   ? 1
			: j == b->n ? -1
				    : compare(var_table_name(a, i), var_table_name(b, j));
		struct slice name = d <= 0 ? var_table_name(a, i) : var_table_name(b, j);

		i += d <= 0;
		j += d >= 0;
		if (d == 0)
			continue;
		n++;
		if (fn)
			fn(arg, d > 0, name);
	}
	return n;
}
