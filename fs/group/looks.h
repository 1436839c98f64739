/* In which lines of the user's code ranks are, at a number of looks at their stacks. */
#ifndef LOOKS_H
#define LOOKS_H
#include "util.h"

/* One line, and in how many of the looks the innermost frame of the user's was there. */
struct look_line {
	char *file, *function;
	unsigned number;
	int n;
};

struct looks {
	struct look_line *line; /* after looks_sort(), the most frequent first */
	size_t lines;
	int n; /* looks in which code of the user's ran */
};

/* Adds the stacks of an Rlook. */
void looks_read(struct looks *l, struct slice stacks);
void looks_sort(struct looks *l);
/* Appends where the ranks are and how certain that is, as "mostly at t.py:41 load(), 18 of 20
 * looks": a line, else two, else a function, in which clearly more than half of the looks were.
 * Where there are none, the two lines in which half were, as "seen at"; else nothing. when: the
 * first word. l is sorted. */
void looks_print(const struct looks *l, const char *when, struct buf *out);
void looks_free(struct looks *l);

#endif
