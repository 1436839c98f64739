/* The grammar of names in `vars`, and the tables of views and OPs. */
#define _GNU_SOURCE
#include "object/varname.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct var_view var_views[] = {
    {"", true, true, "text for people; written: a Python literal, else a string", false, false},
    {"json", true, true, "JSON", false, false},
    {"npy", true, true, "NumPy array or tensor, its live bytes, mmap-able", false, true},
    {"safetensors", true, true, "tensors; state of a module or optimizer", false, true},
    {"pt", true, true, "torch.save; torch.load(weights_only=True)", false, false},
    {"pkl", true, true, "pickle 5, cloudpickle", false, false},
    {"p5", true, true, "pickle 5 with its buffers out of band", false, false},
    {"csv", true, false, "DataFrame or 2-D array", false, false},
    {"png", true, false, "figure or image", false, false},
    {"dir", true, false, "attribute names, one a line; of attributes too: NAME.ATTR.dir", true,
	false},
    {"doc", true, false, "what obj? prints; of attributes too", true, false},
};
const size_t var_view_count = ARRAY_LEN(var_views);

const struct var_op var_ops[] = {
    {"mean", "by elements, over the ranks; of integers float64", &reduce_mean, false},
    {"sum", "by elements; integers wrap, bool counts", &reduce_sum, false},
    {"min", "by elements; NaN wins", &reduce_min, false},
    {"max", "by elements; NaN wins", &reduce_max, false},
    {"gather", "stacked on a new axis 0, else a list; written: item K to rank K", &reduce_gather,
	true},
    {"cat", "joined on axis 0; written: axis 0 split over the ranks", &reduce_cat, true},
    {"cuda", "written: onto each rank's GPU", NULL, true},
    {"same", "the one value; ENOTUNIQ if ranks differ", &reduce_same, false},
};
const size_t var_op_count = ARRAY_LEN(var_ops);

static const struct var_view *
find_view(const char *s)
{
	for (size_t i = 0; i < var_view_count; i++)
		if (strcmp(var_views[i].name, s) == 0)
			return &var_views[i];
	return NULL;
}

static const struct var_op *
find_op(const char *s, size_t n)
{
	for (size_t i = 0; i < var_op_count; i++)
		if (strlen(var_ops[i].name) == n && strncmp(var_ops[i].name, s, n) == 0)
			return &var_ops[i];
	return NULL;
}

bool
var_is_staging(const char *name)
{
	size_t n = strlen(name);

	return *name == '.' || (n > 0 && name[n - 1] == '~') || strcmp(name, "4913") == 0;
}

bool
var_is_probe(const char *name)
{
	static const char *const suffixes[] = {
	    "bak", "lock", "new", "old", "orig", "part", "rej", "save", "swo", "swp", "swx", "tmp"};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < ARRAY_LEN(suffixes); i++)
		if (strcmp(dot + 1, suffixes[i]) == 0)
			return true;
	return false;
}

bool
var_is_name(struct slice s)
{
	if (s.n == 0 || s.n >= VAR_NAME_SIZE || isdigit((unsigned char)s.p[0]))
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!isalnum((unsigned char)s.p[i]) && s.p[i] != '_' &&
		    !((unsigned char)s.p[i] & 0x80))
			return false;
	return true;
}

static int
unknown_suffix(const char *s, bool group, struct err *e)
{
	struct buf b = {0};
	int r;

	for (size_t i = 1; i < var_view_count; i++)
		buf_addf(&b, " %s", var_views[i].name);
	for (size_t i = 0; group && i < var_op_count; i++)
		buf_addf(&b, "%s %s", i ? "" : "; of all ranks:", var_ops[i].name);
	r = fail(e, EINVAL, "no view '%.80s'; there are%s", s, b.p);
	buf_free(&b);
	return r;
}

/* Parses the attribute in `b.c.VIEW`, for views that accept one. False: there is none. */
static bool
take_attribute(const char *s, struct var_name *v)
{
	const char *last = strrchr(s, '.');
	size_t n = last ? (size_t)(last - s) : 0, part;

	v->view = last ? find_view(last + 1) : NULL;
	if (!v->view || !v->view->of_attributes || n >= sizeof(v->attribute))
		return false;
	for (size_t at = 0; at < n; at += part + 1) {
		part = strcspn(s + at, ".");
		if (!var_is_name((struct slice){s + at, part}))
			return false;
	}
	memcpy(v->attribute, s, n);
	return true;
}

/* Python's keywords, which cannot be names. */
static bool
is_keyword(const char *name)
{
	static const char *const keywords[] = {"False", "None", "True", "and", "as", "assert",
	    "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
	    "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
	    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield"};

	for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
		if (strcmp(keywords[i], name) == 0)
			return true;
	return false;
}

/* The last suffix of the first n bytes; NULL if nothing is before it. */
static const char *
last_suffix(const char *s, size_t n)
{
	const char *dot = memrchr(s, '.', n);

	return dot && dot > s ? dot + 1 : NULL;
}

void
var_parse_key(const char *s, bool group, struct var_name *v)
{
	size_t n = strlen(s);
	const char *last = last_suffix(s, n);
	const struct var_view *view = last && *last ? find_view(last) : NULL;

	*v = (struct var_name){.view = view ? view : &var_views[0]};
	if (view) {
		n = (size_t)(last - s) - 1;
		last = last_suffix(s, n);
	}
	v->op = group && last ? find_op(last, n - (size_t)(last - s)) : NULL;
	if (v->op)
		n = (size_t)(last - s) - 1;
	snprintf(v->name, sizeof(v->name), "%.*s", (int)n, s);
}

size_t
var_directory(const char *s)
{
	size_t n = strlen(s);

	return n > 2 && strcmp(s + n - 2, ".d") == 0 ? n - 2 : 0;
}

int
var_parse(const char *s, bool group, struct var_name *v, struct err *e)
{
	const char *dot = strchr(s, '.');
	size_t n = dot ? (size_t)(dot - s) : strlen(s);

	*v = (struct var_name){.view = &var_views[0]};
	if (!var_is_name((struct slice){s, n}))
		return fail(e, EINVAL, "'%.80s' is not a valid variable name", s);
	memcpy(v->name, s, n);
	if (is_keyword(v->name))
		return fail(
		    e, EINVAL, "'%s' is not a valid variable name, but a Python keyword", v->name);
	if (!dot)
		return 0;
	s = dot + 1;
	n = strcspn(s, ".");
	if (group && (v->op = find_op(s, n))) {
		if (!s[n])
			return 0;
		s += n + 1;
	} else if (take_attribute(s, v)) {
		return 0;
	}
	v->view = *s ? find_view(s) : NULL;
	return v->view ? 0 : unknown_suffix(s, group, e);
}
