/* Sets of equal texts, such as the tracebacks of the ranks of a cell. */
#ifndef ALIKE_H
#define ALIKE_H
#include "util.h"

/* A text and whose it is. After sorting, equal ones are adjacent, in the order of i. */
struct alike {
	const char *text;
	int i, n; /* n: for the first of equal ones, their number */
};

/* Sorts t, and stores the first of each set of equal texts in out (room for n), in the order of
 * their i. Returns the number of sets. O(n log n). */
int alike_sets(struct alike *t, int n, struct alike **out);
/* Appends the numbers of a set as a list of ranks, such as 0,2-5. ranks: by i. */
void alike_ranks(const struct alike *first, const int *ranks, struct buf *out);

#endif
