/* Parses lists of hosts. */
#include "host/hostlist.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

enum { HOSTS_MAX = 65536, DECIMAL = 10 };

void
hostlist_free(struct hostlist *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->host[i].name);
	free(l->host);
	*l = (struct hostlist){0};
}

void
hostlist_print(const struct hostlist *l, struct buf *out)
{
	for (size_t i = 0; i < l->n; i++)
		buf_addf(out, "%s%s:%d", i ? " " : "", l->host[i].name, l->host[i].slots);
}

/* An IPv6 address in brackets, optionally with an interface: [fe80::1%eth0] */
static bool
is_address(const char *s, size_t n)
{
	size_t inside = n > 2 && s[0] == '[' && s[n - 1] == ']' ? n - 2 : 0;
	size_t digits = inside ? strspn(s + 1, "0123456789abcdefABCDEF:.") : 0;

	if (digits && digits < inside && s[1 + digits] == '%')
		return digits + 1 < inside &&
		       1 + digits + strspn(s + 2 + digits, LETTERS "._-") >= inside;
	return inside && digits >= inside;
}

/* A name, optionally USER@NAME, that no command mistakes for an option and that is valid in a
 * list. */
static bool
is_name(const char *s, size_t n)
{
	const char *at = memchr(s, '@', n);
	size_t user = at ? (size_t)(at - s) : 0;

	if (at && (!user || *s == '-' || *s == '/' || strspn(s, LETTERS "._-/") < user))
		return false;
	s = at ? at + 1 : s;
	n -= at ? user + 1 : 0;
	return is_address(s, n) || (n && strspn(s, LETTERS "._-/") >= n && *s != '-' && *s != '/');
}

static int
add(struct hostlist *l, const char *name, size_t n, long slots, struct err *e)
{
	if (!is_name(name, n))
		return fail(
		    e, EINVAL, "hosts: '%.*s' is not a host name", (int)MIN(n, (size_t)80), name);
	if (l->n == HOSTS_MAX)
		return fail(e, EINVAL, "hosts: more than %d", HOSTS_MAX);
	l->host = xrealloc(l->host, (l->n + 1) * sizeof(*l->host));
	l->host[l->n++] = (struct host_slots){xstrndup(name, n), (int)slots};
	return 0;
}

/* Parses s, which must be a number of slots and nothing else; -EINVAL. what: the word it is in, for
 * messages. */
static long
slots_of(const char *s, const char *what, struct err *e)
{
	char *end;
	long n = strtol(s, &end, DECIMAL);

	if (*s < '0' || *s > '9' || *end || n < 1 || n > HOST_SLOTS_MAX)
		return fail(e, EINVAL, "hosts: want 1..%d ranks for a host, not '%.80s'",
		    HOST_SLOTS_MAX, what);
	return n;
}

struct hostlist_index {
	size_t n;
	const struct host_slots *host[]; /* by name */
};

static int
compare(const void *a, const void *b)
{
	const struct host_slots *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

struct hostlist_index *
hostlist_index(const struct hostlist *l)
{
	struct hostlist_index *x = xcalloc(1, sizeof(*x) + l->n * sizeof(struct host_slots *));

	x->n = l->n;
	for (size_t i = 0; i < l->n; i++)
		x->host[i] = &l->host[i];
	qsort(x->host, x->n, sizeof(struct host_slots *), compare);
	return x;
}

const struct host_slots *
hostlist_find(const struct hostlist_index *x, const char *name)
{
	const struct host_slots key = {.name = (char *)(uintptr_t)name}, *k = &key;
	const struct host_slots *const *found =
	    bsearch(&k, x->host, x->n, sizeof(struct host_slots *), compare);

	return found ? *found : NULL;
}

void
hostlist_index_free(struct hostlist_index *x)
{
	free(x);
}

/* Checks that there is at least one host and that none appears twice. */
static int
check(const struct hostlist *l, struct err *e)
{
	struct hostlist_index *x = hostlist_index(l);
	int r = l->n ? 0 : fail(e, EINVAL, "hosts: want e.g. a:2 b:2, a file, slurm, or local");

	for (size_t i = 1; i < l->n && r == 0; i++)
		if (strcmp(x->host[i - 1]->name, x->host[i]->name) == 0)
			r = fail(e, EINVAL, "hosts: %.80s appears twice: write %.80s:N",
			    x->host[i]->name, x->host[i]->name);
	hostlist_index_free(x);
	return r;
}

static int
finish(struct hostlist *l, int r, struct err *e)
{
	if (r == 0)
		r = check(l, e);
	if (r < 0)
		hostlist_free(l);
	return r;
}

/* "a", "a:2", "[::1]:2" */
static int
add_word(struct hostlist *l, const char *word, struct err *e)
{
	const char *bracket = strrchr(word, ']'), *colon = strrchr(word, ':');
	long slots = HOST_SLOTS;

	if (!bracket && colon && strchr(word, ':') != colon)
		return fail(e, EINVAL,
		    "hosts: %.80s: write an address of IPv6 in brackets, [::1] or [::1]:2", word);
	if (colon && bracket && colon < bracket)
		colon = NULL;
	if (colon && (slots = slots_of(colon + 1, word, e)) < 0)
		return (int)slots;
	return add(l, word, colon ? (size_t)(colon - word) : strlen(word), slots, e);
}

int
hostlist_words(const char *words, struct hostlist *out, struct err *e)
{
	char *copy = xstrdup(words), *save, *word;
	int r = 0;

	*out = (struct hostlist){0};
	for (word = strtok_r(copy, ", \t", &save); word && r == 0;
	     word = strtok_r(NULL, ", \t", &save))
		r = add_word(out, word, e);
	free(copy);
	return finish(out, r, e);
}

/* line: without its comment. where: for messages. */
static int
add_line(struct hostlist *l, char *line, const char *where, struct err *e)
{
	static const char key[] = "slots=";
	char *save, *name = strtok_r(line, " \t\r", &save);
	char *count = name ? strtok_r(NULL, " \t\r", &save) : NULL;
	long slots = HOST_SLOTS;

	if (!name)
		return 0;
	if (count && (strncmp(count, key, sizeof(key) - 1) != 0 || strtok_r(NULL, " \t\r", &save)))
		return fail(e, EINVAL, "hosts: %s: want NAME slots=N", where);
	if (count && (slots = slots_of(count + sizeof(key) - 1, count, e)) < 0)
		return (int)slots;
	return add(l, name, strlen(name), slots, e);
}

int
hostlist_text(const char *text, const char *path, struct hostlist *out, struct err *e)
{
	int r = 0, number = 0;

	*out = (struct hostlist){0};
	for (const char *at = text; *at && r == 0; number++) {
		size_t n = strcspn(at, "\n");
		char *line = xstrndup(at, n), *where = xasprintf("%.200s:%d", path, number + 1);

		line[strcspn(line, "#")] = '\0';
		r = add_line(out, line, where, e);
		free(line);
		free(where);
		at += n + (at[n] == '\n');
	}
	return finish(out, r, e);
}

/* ---- Slurm ---- */

/* Names have the form n[01-03,7]: what precedes the bracket is combined with each number of the
 * list. */
static int
expand(struct hostlist *l, const char *before, const char *rest, struct err *e)
{
	const char *open = strchr(rest, '['), *close = open ? strchr(open, ']') : NULL, *p;
	char *whole;
	int r = 0;

	if (!open) {
		whole = xasprintf("%s%s", before, rest);
		r = add(l, whole, strlen(whole), HOST_SLOTS, e);
		free(whole);
		return r;
	}
	for (p = open; close && p < close && r == 0;) {
		char *end;
		int width = (int)strspn(p + 1, "0123456789");
		long from = strtol(p + 1, &end, DECIMAL), to = from;

		if (width && *end == '-')
			to = strtol(end + 1, &end, DECIMAL);
		if (!width || (end != close && *end != ',') || to < from || to - from > HOSTS_MAX)
			break;
		for (; from <= to && r == 0; from++) {
			whole =
			    xasprintf("%s%.*s%0*ld", before, (int)(open - rest), rest, width, from);
			r = expand(l, whole, close + 1, e);
			free(whole);
		}
		p = end;
	}
	if (r == 0 && (!close || p != close))
		return fail(e, EINVAL, "hosts slurm: can't read the list of nodes %.200s", rest);
	return r;
}

/* The length of the first name of a list: up to a comma that is in no bracket. */
static size_t
first_of(const char *list)
{
	size_t n = 0;
	int depth = 0;

	for (; list[n] && (list[n] != ',' || depth); n++)
		depth += (list[n] == '[') - (list[n] == ']');
	return n;
}

/* Parses 2(x3),1, which must cover all hosts. */
static int
set_tasks(struct hostlist *l, const char *tasks, struct err *e)
{
	const char *p = tasks;
	size_t i = 0;

	while (*p && i < l->n) {
		char *end;
		long slots = strtol(p, &end, DECIMAL), times = 1;

		if (end != p && strncmp(end, "(x", 2) == 0) {
			times = strtol(end + 2, &end, DECIMAL);
			end += *end == ')';
		}
		if (end == p || (*end && *end != ',') || slots < 1 || slots > HOST_SLOTS_MAX)
			break;
		for (; times > 0 && i < l->n; times--)
			l->host[i++].slots = (int)slots;
		p = end + (*end == ',');
	}
	if (i == l->n)
		return 0;
	return fail(e, EINVAL, "hosts slurm: can't read SLURM_TASKS_PER_NODE=%.200s for %zu nodes",
	    tasks, l->n);
}

int
hostlist_slurm(const char *nodes, const char *tasks, struct hostlist *out, struct err *e)
{
	int r = 0;

	*out = (struct hostlist){0};
	if (!nodes || !*nodes)
		return fail(e, EINVAL,
		    "hosts slurm: SLURM_JOB_NODELIST is not set: mount inside the allocation "
		    "(salloc, sbatch)");
	for (const char *at = nodes; *at && r == 0;) {
		size_t n = first_of(at);
		char *one = xstrndup(at, n);

		r = expand(out, "", one, e);
		free(one);
		at += n + (at[n] == ',');
	}
	if (r == 0 && tasks)
		r = set_tasks(out, tasks, e);
	return finish(out, r, e);
}
