/* Which ranks the others wait for in each step: from how long a step takes on each rank, and how
 * long it waits in one. */
#ifndef STRAGGLER_H
#define STRAGGLER_H
#include "wire.h"
#include <stdbool.h>

/* The last steps of a rank by one of its clocks, as the engine tells them (rank/profile.h). */
struct pace {
	unsigned steps;	     /* 0: unknown; else the times are medians of so many */
	double step, waited; /* s: what one takes; how much of it the rank waits for others */
	char in[32];	     /* in which operation the most; "-": none */
};

/* Reads `CLOCK STEPS STEP WAITED IN` into the pace of that clock. Returns false if it is damaged.
 */
bool pace_read(const char *line, struct pace pace[CLOCKS]);

struct paced {
	int rank;
	const struct pace *pace; /* of each clock */
	const char *line;	 /* where its own code is now, "-": unknown */
};

struct straggler {
	enum clock clock; /* CLOCKS: the ranks have none in common, or are not in step */
	bool *slow;	  /* is p[i] one? Owned */
	int n;		  /* so many are: 0, it is not certain that there is one */
	unsigned steps;
	double step, own, others, waits; /* s: own time of the slow ones at least, of the others at
					    most, and what these wait at least */
	char *text;			 /* the same as a sentence; owned, NULL: none */
};

/* p: all ranks that run a cell. straggler_free() frees the result. */
struct straggler straggler_find(const struct paced *p, int n);
void straggler_free(struct straggler *s);

#endif
