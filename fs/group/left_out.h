/* What had no room in the report of a cell, and which file has it. */
#ifndef LEFT_OUT_H
#define LEFT_OUT_H
#include "util.h"

enum { LEFT_OUT_KINDS = 8 };

/* The facts of one word. */
struct left_out_kind {
	const char *word; /* with which their lines would begin */
	/* of the first one: whose it is, "" if it is nobody's; the file, below the group's
	 * directory, NULL: none has it. Owned */
	char *ranks, *see;
	int n;
};

struct left_out {
	struct left_out_kind kind[LEFT_OUT_KINDS];
	int n;
};

/* Adds n facts of a word, which must stay. ranks: NULL or a list. see is owned from now on. */
void left_out_add(struct left_out *l, const char *word, const char *ranks, char *see, int n);
/* The file that has what lines of this word tell of a cell. rank: the one that failed first, -1:
 * none. runs: the cell does. NULL: no file has it. */
char *left_out_file(const char *word, int cell, int rank, bool runs);
/* Appends what it is, as "output of 3 and 1 more". */
void left_out_print(const struct left_out_kind *k, struct buf *out);
void left_out_free(struct left_out *l);

#endif
