/* Who waits for whom: what is certain of the ranks' collectives. */
#ifndef VERDICT_H
#define VERDICT_H
#include "group/straggler.h"
#include "util.h"
#include <stdint.h>

/* One operation of a group, as the engine describes it (flight.py, rank/flight.h). The strings are
 * the place's. */
struct operation {
	unsigned number; /* in its group */
	const char *name, *dtype;
	long elements;	/* -1: unknown */
	double seconds; /* since it was entered; -1: unknown */
	bool done;
};

/* A process group that a rank is in, by one of its sources. */
struct membership {
	const char *name, *source, *members;
	unsigned entered; /* the highest number of an operation that the rank has entered */
	struct operation *op;
	size_t n;
};

/* LOST: the process that ran its part of the cell has died; another one has answered. DEBUGGED: a
 * front end's debugger has stopped it. */
enum place_state {
	PLACE_UNKNOWN,
	PLACE_ENDED,
	PLACE_LOST,
	PLACE_NO_CELL,
	PLACE_BUSY,
	PLACE_DEBUGGED
};

/* Where a rank is. */
struct rank_place {
	int rank;
	enum place_state state; /* unknown: it has not answered */
	bool program;		/* what it ended is a program, not a cell */
	bool failed;		/* it ended by an error */
	const char *in;		/* the Python call that it is in, such as backward; "-": none */
	const char *line;	/* of the user's code; "-": unknown */
	double seconds;		/* in this call */
	bool innermost;		/* no Python code runs within this call */
	unsigned cell;		/* that it runs; 0: none */
	unsigned calls;		/* collectives of the default group that it completed in it */
	/* the description */
	bool sleeps;	  /* its main thread does not compute */
	bool aside;	  /* another thread is in this call: the line says nothing of it */
	bool counts;	  /* Python has told of source "own": nothing else holds the GIL */
	bool on_gpu;	  /* it uses CUDA, and waits also for its own GPU */
	bool recorded;	  /* torch records all of its groups */
	unsigned counted; /* the cell in which source "own" counts */
	struct pace pace[CLOCKS];
	struct membership *group;
	size_t n;
	char *text; /* owned, as are the arrays */
};

/* Reads a description into the place, which verdict_free() frees. */
void verdict_read(struct rank_place *p, struct slice description);
void verdict_free(struct rank_place *p);
/* Do torch's recorders say this of the group, and not Python? */
bool verdict_is_recorded(const struct membership *m);
/* The operation that the rank waits in, and its group; NULL if that is not certain. */
const struct operation *verdict_waits_in(
    const struct rank_place *p, const struct membership **group);

/* DEBUGGED: `ranks` are stopped in a debugger, and wait for nobody else. LATE: `ranks` have not
 * entered the operation. AWAY: they have ended, or run no cell. DIFFERENT: they have entered
 * another one under this number. ENTERED: all members are in it. */
enum verdict_kind {
	VERDICT_DEBUGGED,
	VERDICT_LATE,
	VERDICT_AWAY,
	VERDICT_DIFFERENT,
	VERDICT_ENTERED
};

/* A wait whose cause is certain. */
struct verdict {
	enum verdict_kind kind;
	const struct operation
	    *op; /* of the place of a rank that waits, as is its group; or NULL */
	const struct membership *group;
	int *ranks, *waiting; /* the numbers of the causes, and of those that wait in op; owned */
	int n, waiting_n;
	char *text; /* the same as a sentence; owned */
};

struct verdicts {
	struct verdict *list;
	size_t n;
};

extern const char *const verdict_kinds[]; /* "late" … */

/* All that is certain, first the waits for a rank that waits for none. took: the seconds that it
 * took to ask the ranks: a wait that began meanwhile may have ended for another. The result refers
 * to the places, and verdict_free_all() frees it. */
struct verdicts verdict_find(const struct rank_place *p, int n, double took);
void verdict_free_all(struct verdicts *v);

#endif
