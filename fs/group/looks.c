/* Counts in which lines of the user's code ranks have been seen. */
#include "group/looks.h"
#include "group/frames.h"
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 200, FUNCTION_MAX = 64 }; /* bytes of a name */

enum { ENOUGH = 8 }; /* looks, so that their numbers tell something */

enum { RARE = 4 }; /* a second line that was seen so many times less often is not named */

static char *
name_of(struct slice s, size_t max)
{
	return xstrndup(s.p, MIN(s.n, max));
}

/* Does it stand within the function that calls it? */
static bool
is_comprehension(struct slice function)
{
	return slice_eq(function, "<listcomp>") || slice_eq(function, "<setcomp>") ||
	       slice_eq(function, "<dictcomp>");
}

static void
add(struct looks *l, struct frame f, struct slice callers)
{
	struct frame caller;
	size_t i = 0;
	char *file = name_of(f.file, FILE_MAX);

	while (is_comprehension(f.function) && frames_next(&callers, &caller) &&
	       slice_eq(caller.file, file))
		f.function = caller.function;
	while (i < l->lines && (l->line[i].number != f.line || strcmp(l->line[i].file, file) != 0))
		i++;
	if (i < l->lines) {
		free(file);
	} else {
		l->line = xrealloc(l->line, ++l->lines * sizeof(*l->line));
		l->line[i] = (struct look_line){file, name_of(f.function, FUNCTION_MAX), f.line, 0};
	}
	l->line[i].n++;
	l->n++;
}

void
looks_read(struct looks *l, struct slice stacks)
{
	while (stacks.n) {
		const char *end = memchr(stacks.p, '\n', stacks.n);
		size_t head = end ? (size_t)(end + 1 - stacks.p) : stacks.n;
		bool found = false;
		struct frame f;

		stacks = (struct slice){stacks.p + head, stacks.n - head};
		while (frames_next(&stacks, &f)) {
			if (!found && frame_is_users(&f, stacks)) {
				add(l, f, stacks);
				found = true;
			}
		}
	}
}

static int
compare(const void *a, const void *b)
{
	const struct look_line *x = a, *y = b;

	if (x->n != y->n)
		return y->n - x->n;
	return x->number < y->number ? -1 : x->number > y->number;
}

void
looks_sort(struct looks *l)
{
	if (l->lines)
		qsort(l->line, l->lines, sizeof(*l->line), compare);
}

/* The looks that are more than half by two standard deviations, as chance alone seldom makes them.
 */
static int
clearly_most(const struct looks *l)
{
	int n = l->n, k = n / 2 + 1;

	while ((2 * k - n) * (2 * k - n) < 4 * n)
		k++;
	return k;
}

static void
print_function(const struct look_line *a, struct buf *out)
{
	if (strcmp(a->function, "<module>") != 0)
		buf_addf(out, " %s()", a->function);
}

static bool
is_same_function(const struct look_line *a, const struct look_line *b)
{
	return strcmp(a->file, b->file) == 0 && strcmp(a->function, b->function) == 0;
}

static bool
print_line(const struct looks *l, const char *when, struct buf *out)
{
	const struct look_line *a = l->line;

	if (l->lines < 1 || a->n < clearly_most(l))
		return false;
	buf_addf(out, "%s at %s:%u", when, a->file, a->number);
	print_function(a, out);
	buf_addf(out, ", %d of %d looks", a->n, l->n);
	return true;
}

/* least: so many of the looks must have found one of them. */
static bool
print_two_lines(const struct looks *l, const char *when, int least, struct buf *out)
{
	const struct look_line *a = l->line, *b = a + 1;

	if (l->lines < 2 || a->n + b->n < least || b->n * RARE < a->n)
		return false;
	buf_addf(out, "%s at %s:%u", when, a->file, a->number);
	if (!is_same_function(a, b))
		print_function(a, out);
	buf_addf(out, " or %s:%u", strcmp(a->file, b->file) == 0 ? "" : b->file, b->number);
	print_function(b, out);
	buf_addf(out, ", %d and %d of %d looks", a->n, b->n, l->n);
	return true;
}

/* The lines of one function, or of those of its name in the file. */
static bool
print_lines(const struct looks *l, const char *when, struct buf *out)
{
	for (size_t i = 0; i < l->lines; i++) {
		const struct look_line *a = &l->line[i];
		unsigned first = a->number, last = first;
		int n = 0;

		for (const struct look_line *b = l->line; b < l->line + l->lines; b++) {
			if (!is_same_function(a, b))
				continue;
			n += b->n;
			first = MIN(first, b->number);
			last = MAX(last, b->number);
		}
		if (n < clearly_most(l))
			continue;
		buf_addf(out, "%s at %s:%u-%u", when, a->file, first, last);
		print_function(a, out);
		buf_addf(out, ", %d of %d looks", n, l->n);
		return true;
	}
	return false;
}

void
looks_print(const struct looks *l, const char *when, struct buf *out)
{
	if (!print_line(l, when, out) && !print_two_lines(l, when, clearly_most(l), out) &&
	    !print_lines(l, when, out) && l->n >= ENOUGH)
		print_two_lines(l, "seen", (l->n + 1) / 2, out);
}

void
looks_free(struct looks *l)
{
	for (size_t i = 0; i < l->lines; i++) {
		free(l->line[i].file);
		free(l->line[i].function);
	}
	free(l->line);
	*l = (struct looks){0};
}
