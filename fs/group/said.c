/* Compares what the ranks hold under each name. */
#include "group/said.h"
#include "group/alike.h"
#include "group/rank_set.h"
#include <stdlib.h>
#include <string.h>

enum { VALUES_SHOWN = 4 };

struct entry {
	char *name, *value; /* name: owned, value: within it */
	int i;		    /* of the rank */
};

struct slice
said_next(const char **p, const char *key)
{
	size_t len = strlen(key);

	while (**p) {
		const char *line = *p;
		size_t n = strcspn(line, "\n");

		*p += n + (line[n] == '\n');
		if (n > len && line[len] == ' ' && memcmp(line, key, len) == 0)
			return (struct slice){line + len + 1, n - len - 1};
	}
	return (struct slice){0};
}

/* Is it a number that is not finite, or a tensor that has one? A text is quoted. */
static bool
is_odd(const char *value)
{
	return *value != '\'' && *value != '"' && (strstr(value, "nan") || strstr(value, "inf"));
}

static int
compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	return r ? r : x->i - y->i;
}

static int
compare_differing(const void *a, const void *b)
{
	const struct said_differing *x = a, *y = b;

	return x->odd != y->odd ? y->odd - x->odd : strcmp(x->name.p, y->name.p);
}

static void
add_value(struct buf *out, const struct alike *set, const int *rank, int shown)
{
	if (shown >= VALUES_SHOWN) {
		buf_adds(out, shown == VALUES_SHOWN ? ", …" : "");
		return;
	}
	buf_addf(out, "%s%s on ", shown ? ", " : "", set->text);
	alike_ranks(set, rank, out);
}

/* e: what n ranks hold under one name. */
static void
add_differing(struct said_locals *l, const struct entry *e, int n, const int *rank)
{
	struct alike *t = xcalloc((size_t)n, sizeof(*t));
	struct alike **first = xcalloc((size_t)n, sizeof(struct alike *));
	struct said_differing *d;
	int sets, shown = 0;

	for (int i = 0; i < n; i++)
		t[i] = (struct alike){e[i].value, e[i].i, 0};
	sets = alike_sets(t, n, first);
	l->differing = xrealloc(l->differing, ((size_t)l->n + 1) * sizeof(*l->differing));
	d = &l->differing[l->n++];
	*d = (struct said_differing){0};
	buf_adds(&d->name, e->name);
	for (int odd = 1; odd >= 0; odd--)
		for (int i = 0; i < sets; i++)
			if (is_odd(first[i]->text) == odd) {
				add_value(&d->text, first[i], rank, shown++);
				d->odd |= odd;
			}
	free(first);
	free(t);
}

static void
add_name(struct said_locals *l, const struct entry *e, int n, const int *rank, int all)
{
	bool alike = n == all, is_number = n > 1;
	struct buf *out = is_odd(e[0].value) ? &l->odd : &l->common;

	for (int i = 0; i < n; i++) {
		alike &= strcmp(e[i].value, e[0].value) == 0;
		is_number &= *e[i].value >= '0' && *e[i].value <= '9' &&
			     strtol(e[i].value, NULL, 10) == rank[e[i].i];
	}
	if (is_number)
		return; /* `rank`: everybody knows */
	if (alike)
		buf_addf(out, "%s%s=%s", out->n ? " " : "", e->name, e->value);
	else
		add_differing(l, e, n, rank);
}

/* The entries of all ranks, in the order of their names. */
static struct entry *
collect(const char *const *said, int n, size_t *count)
{
	struct entry *e = NULL;

	*count = 0;
	for (int i = 0; i < n; i++) {
		const char *p = said[i];

		for (struct slice s; (s = said_next(&p, "local")).p;) {
			char *name = slice_dup(s), *tab = strchr(name, '\t');

			if (!tab) {
				free(name);
				continue;
			}
			*tab = '\0';
			e = xrealloc(e, (*count + 1) * sizeof(*e));
			e[(*count)++] = (struct entry){name, tab + 1, i};
		}
	}
	if (*count)
		qsort(e, *count, sizeof(*e), compare_entries);
	return e;
}

struct said_locals
said_compare(const char *const *said, const int *rank, int n)
{
	struct said_locals l = {0};
	struct rank_set set = {0};
	size_t count;
	struct entry *e = collect(said, n, &count);
	int all;

	for (size_t i = 0; i < count; i++)
		rank_set_add(&set, rank[e[i].i]);
	all = rank_set_count(&set);
	rank_set_print(&set, &l.ranks);
	for (size_t at = 0, next; at < count; at = next) {
		for (next = at + 1; next < count && strcmp(e[next].name, e[at].name) == 0;)
			next++;
		add_name(&l, &e[at], (int)(next - at), rank, all);
	}
	buf_addf(&l.odd, "%s%.*s", l.odd.n && l.common.n ? " " : "", (int)l.common.n, l.common.p);
	buf_free(&l.common);
	l.common = l.odd;
	if (l.n)
		qsort(l.differing, (size_t)l.n, sizeof(*l.differing), compare_differing);
	for (size_t i = 0; i < count; i++)
		free(e[i].name);
	free(e);
	return l;
}

void
said_free(struct said_locals *l)
{
	for (int i = 0; i < l->n; i++) {
		buf_free(&l->differing[i].name);
		buf_free(&l->differing[i].text);
	}
	free(l->differing);
	buf_free(&l->ranks);
	buf_free(&l->common);
	*l = (struct said_locals){0};
}
