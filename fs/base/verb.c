/* Splits a line of a `ctl` file, looks up its verb, checks it and runs it. */
#include "base/verb.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct verb *
verb_find(const struct verb_table *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->verb[i].name, name) == 0)
			return &t->verb[i];
	return NULL;
}

static int
unknown(const struct verb_table *const *tables, const char *word, struct err *e)
{
	struct buf all = {0};

	for (; *tables; tables++)
		for (size_t i = 0; i < (*tables)->n; i++)
			buf_addf(&all, " %s", (*tables)->verb[i].name);
	fail(e, EINVAL, "no verb '%.80s'; want one of%s", word, all.p);
	buf_free(&all);
	return -EINVAL;
}

static int
call(const struct verb_table *t, const struct verb *v, struct verb_call *c)
{
	int r;

	if (c->n < v->min || c->n > v->max)
		return fail(c->e, EINVAL, "usage: %s%s%s", v->name, *v->args ? " " : "", v->args);
	c->verb = v;
	r = t->check ? t->check(v, c) : 0;
	return r < 0 ? r : v->fn(c);
}

int
verb_line(const struct verb_table *const *tables, const char *line, void *subject, void *result,
    struct err *e)
{
	char *copy = xstrdup(line), *words[WORDS_MAX];
	struct verb_call c = {.subject = subject, .result = result, .word = words, .e = e};
	int n = words_split(copy, words, WORDS_MAX, e), r = MIN(n, 0);
	const struct verb *v = NULL;

	c.n = n - 1;
	if (n > 0) {
		const struct verb_table *const *t = tables;

		while (*t && !(v = verb_find(*t, words[0])))
			t++;
		r = v ? call(*t, v, &c) : unknown(tables, words[0], e);
	}
	free(copy);
	return r;
}

void
verb_help(const struct verb_table *t, struct buf *out)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct verb *v = &t->verb[i];

		buf_addf(out, "%c %-9s %-20s %s\n",
		    t->check && !(v->flags & VERB_ANYTIME) ? '*' : ' ', v->name, v->args, v->help);
	}
}
