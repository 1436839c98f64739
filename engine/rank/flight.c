/* Reads what torch's flight recorder has recorded. */
#define _GNU_SOURCE
#include "rank/flight.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The rest of the text. NULL: it has another form than expected. */
struct json {
	const char *p, *end;
};

struct record {
	uint64_t id, number, created; /* created: ns since 1970 */
	struct slice group, name, dtype;
	long elements;
	bool done, between_two; /* a send or receive */
};

struct records {
	struct record *one;
	size_t n;
};

/* The next character that is no space; 0 at the end. */
static char
peek(struct json *j)
{
	while (j->p && j->p < j->end && strchr(" \t\r\n", *j->p))
		j->p++;
	return (char)(j->p && j->p < j->end ? *j->p : 0);
}

static bool
take(struct json *j, char c)
{
	if (peek(j) != c)
		return false;
	j->p++;
	return true;
}

/* What is between the quotes, with its escapes. */
static struct slice
take_string(struct json *j)
{
	const char *from;

	if (!take(j, '"')) {
		j->p = NULL;
		return (struct slice){0};
	}
	for (from = j->p; j->p < j->end && *j->p != '"'; j->p++)
		if (*j->p == '\\')
			j->p++;
	if (j->p >= j->end) {
		j->p = NULL;
		return (struct slice){0};
	}
	return (struct slice){from, (size_t)(j->p++ - from)};
}

static void
skip_value(struct json *j)
{
	int depth = 0;

	do {
		char c = peek(j);

		if (c == '"') {
			take_string(j);
		} else if (c == '[' || c == '{') {
			j->p++;
			depth++;
		} else if (c == ']' || c == '}') {
			j->p++;
			depth--;
		} else if (c == ',' || c == ':') {
			j->p++;
		} else {
			const char *from = j->p;

			while (j->p && j->p < j->end && !strchr(",:]} \t\r\n", *j->p))
				j->p++;
			if (j->p == from)
				j->p = NULL;
		}
	} while (depth > 0 && j->p);
}

/* Goes to the next element of an array or object, whose opening bracket has been taken. Returns
 * false behind its end. */
static bool
next(struct json *j, char close, bool *is_first)
{
	if (take(j, close))
		return false;
	if (!*is_first && !take(j, ','))
		j->p = NULL;
	*is_first = false;
	return j->p != NULL;
}

/* The same of an object: *key is that of the value that follows. */
static bool
next_key(struct json *j, struct slice *key, bool *is_first)
{
	if (!next(j, '}', is_first))
		return false;
	*key = take_string(j);
	if (!take(j, ':'))
		j->p = NULL;
	return j->p != NULL;
}

static uint64_t
take_number(struct json *j)
{
	uint64_t value = 0;

	if (!strchr("0123456789", peek(j)) || !peek(j))
		skip_value(j); /* negative: none of those that we read */
	for (; j->p && j->p < j->end && *j->p >= '0' && *j->p <= '9'; j->p++)
		value = value * 10 + (uint64_t)(*j->p - '0');
	return value;
}

static bool
take_truth(struct json *j)
{
	bool is_true = peek(j) == 't';

	skip_value(j);
	return is_true;
}

/* The first string of an array, whose other elements are passed over. */
static struct slice
take_first(struct json *j)
{
	struct slice found = {0};
	bool is_first = true, is_found = false;

	if (!take(j, '['))
		j->p = NULL;
	while (next(j, ']', &is_first)) {
		if (!is_found && peek(j) == '"')
			found = take_string(j);
		else
			skip_value(j);
		is_found = true;
	}
	return found;
}

/* The number of elements of tensors of these sizes, such as [[2,3],[4]]; -1 if there is none. */
static long
take_sizes(struct json *j)
{
	bool is_first = true;
	uint64_t sum = 0;
	size_t n = 0;

	if (!take(j, '['))
		j->p = NULL;
	for (; next(j, ']', &is_first); n++) {
		bool is_outer = true;
		uint64_t product = 1;

		if (!take(j, '['))
			j->p = NULL;
		while (next(j, ']', &is_outer))
			product *= take_number(j);
		sum += product;
	}
	return n ? (long)sum : -1;
}

static void
take_field(struct json *j, struct slice key, struct record *r)
{
	if (slice_eq(key, "record_id"))
		r->id = take_number(j);
	else if (slice_eq(key, "collective_seq_id"))
		r->number = take_number(j);
	else if (slice_eq(key, "time_created_ns"))
		r->created = take_number(j);
	else if (slice_eq(key, "process_group"))
		r->group = take_first(j);
	else if (slice_eq(key, "profiling_name"))
		r->name = take_string(j);
	else if (slice_eq(key, "input_dtypes"))
		r->dtype = take_first(j);
	else if (slice_eq(key, "input_sizes"))
		r->elements = take_sizes(j);
	else if (slice_eq(key, "retired"))
		r->done = take_truth(j);
	else if (slice_eq(key, "is_p2p"))
		r->between_two = take_truth(j);
	else
		skip_value(j);
}

static void
take_records(struct json *j, struct records *all)
{
	bool is_first = true;

	if (!take(j, '['))
		j->p = NULL;
	while (next(j, ']', &is_first)) {
		struct record r = {.elements = -1};
		struct slice key;
		bool is_outer = true;

		if (!take(j, '{'))
			j->p = NULL;
		while (next_key(j, &key, &is_outer))
			take_field(j, key, &r);
		all->one = xrealloc(all->one, (all->n + 1) * sizeof(r));
		all->one[all->n++] = r;
	}
}

static int
compare(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* Appends a name that is one word: "gloo:all_reduce" as all_reduce. */
static void
print_name(struct buf *out, struct slice name)
{
	const char *colon = name.n ? memrchr(name.p, ':', name.n) : NULL;
	size_t from = colon ? (size_t)(colon + 1 - name.p) : 0;

	while (from < name.n && name.p[from] == '_')
		from++;
	name = (struct slice){name.p + from, name.n - from};
	if (slice_eq(name, "all_reduce_barrier")) /* NCCL has no barrier of its own */
		name = slice_text("barrier");
	for (size_t i = 0; i < name.n; i++)
		buf_addc(out, (char)(name.p[i] > ' ' ? name.p[i] : '_'));
	if (!name.n)
		buf_addc(out, '-');
}

/* Appends the type by torch's name for it; C++ calls it by another one. */
static void
print_dtype(struct buf *out, struct slice dtype)
{
	static const char *const names[][2] = {{"Float", "float32"}, {"Double", "float64"},
	    {"Half", "float16"}, {"BFloat16", "bfloat16"}, {"Byte", "uint8"}, {"Char", "int8"},
	    {"Short", "int16"}, {"Int", "int32"}, {"Long", "int64"}, {"Bool", "bool"}};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_eq(dtype, names[i][0]))
			dtype = slice_text(names[i][1]);
	print_name(out, dtype);
}

/* Appends what is recorded of the group of this line. */
static void
print_group(
    const struct records *all, char *line, const char *recorder, double now, struct buf *out)
{
	char *save = NULL, *name = strtok_r(line, " ", &save), *its = strtok_r(NULL, " ", &save);
	char *from = strtok_r(NULL, " ", &save), *members = strtok_r(NULL, " ", &save);
	uint64_t first = from ? strtoull(from, NULL, 10) : 0, entered = 0;
	size_t n = 0;
	struct buf lines = {0};

	if (!members || strcmp(its, recorder) != 0)
		return;
	for (size_t i = 0; i < all->n; i++) {
		const struct record *r = &all->one[i];

		if (r->id < first || r->between_two || !slice_eq(r->group, name))
			continue;
		n++;
		entered = MAX(entered, r->number);
		buf_addf(&lines, "op %llu ", (unsigned long long)r->number);
		print_name(&lines, r->name);
		buf_addf(&lines, " %ld ", r->elements);
		print_dtype(&lines, r->dtype);
		buf_addf(&lines, " %d %.6f\n", r->done, MAX(0.0, now - in_seconds(r->created)));
	}
	if (n || !all->n || all->one[0].id <= first)
		buf_addf(out, "group %s %s %llu %s\n", name, recorder, (unsigned long long)entered,
		    members);
	else
		buf_addf(out, "group %s lost 0 %s\n", name, members);
	buf_add(out, lines.p, lines.n);
	buf_free(&lines);
}

bool
flight_print(
    struct slice json, struct slice groups, const char *recorder, double now, struct buf *out)
{
	struct json j = {json.p, json.p + json.n};
	struct records all = {0};
	struct slice key;
	bool is_first = true;
	char *lines = slice_dup(groups), *save = NULL;

	if (!take(&j, '{'))
		j.p = NULL;
	while (next_key(&j, &key, &is_first)) {
		if (slice_eq(key, "entries"))
			take_records(&j, &all);
		else
			skip_value(&j);
	}
	if (all.n)
		qsort(all.one, all.n, sizeof(*all.one), compare);
	for (char *l = strtok_r(lines, "\n", &save); l && j.p; l = strtok_r(NULL, "\n", &save))
		print_group(&all, l, recorder, now, out);
	free(all.one);
	free(lines);
	return j.p != NULL;
}
