/* What a cell is: its number, its source, its ranks, its task. */
#ifndef CELL_DATA_H
#define CELL_DATA_H
#include "group/task.h"

struct cell {
	struct group *g; /* not referenced: a cell lives in its group's history */
	int number, refs;
	bool gone;	/* dropped from the history; open files still read it */
	struct work *w; /* kept after its end */
	char *source;
	size_t source_len;
	int *ranks, n;
	TAILQ_ENTRY(cell) link;
};

#endif
