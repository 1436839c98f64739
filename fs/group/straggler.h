/* Which ranks the others wait for in each step: from how long a step takes on each rank, and how
 * long it waits and is on a CPU in one. */
#ifndef STRAGGLER_H
#define STRAGGLER_H
#include "wire.h"
#include <stdbool.h>

/* The last steps of a rank by one of its clocks, as the engine tells them (rank/profile.h). */
struct pace {
	unsigned steps;	     /* 0: unknown; else the times are medians of so many */
	double step, waited; /* s: what one takes; how much of it the rank waits for others */
	double cpu;	     /* s: how much of it its main thread is on a CPU */
	char in[32];	     /* in which operation it waits the most; "-": none */
};

/* Reads `CLOCK STEPS STEP WAITED CPU IN` into the pace of that clock. Returns false if it is
 * damaged.
 */
bool pace_read(const char *line, struct pace pace[CLOCKS]);

struct paced {
	int rank;
	const struct pace *pace; /* of each clock */
};

struct straggler {
	enum clock clock; /* CLOCKS: the ranks have none in common, or are not in step */
	bool *slow;	  /* is p[i] one? Owned */
	int n;		  /* so many are: 0, it is not certain that there is one */
	unsigned steps;
	double step, own, others, waits; /* s: own time of the slow ones at least, of the others at
					    most, and what these wait at least */
};

/* p: all ranks that run a cell. straggler_free() frees the result. */
struct straggler straggler_find(const struct paced *p, int n);
/* The same as a sentence, if there is one. where: in which lines the slow ones are, or "". The
 * caller frees it. */
char *straggler_text(const struct straggler *s, const struct paced *p, int n, const char *where);
/* What a step takes, and which ranks wait least and most in it, and have the least and most CPU
 * time, by a clock that the ranks have. The caller frees it. */
char *straggler_pace(const struct straggler *s, const struct paced *p, int n);
/* The time in s in which each line of a loop has its turn. */
double straggler_period(const struct straggler *s);
void straggler_free(struct straggler *s);

#endif
