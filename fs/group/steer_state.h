/* What steer.c and watch.c share: a source that is to run, or to be evaluated, within the running
 * cell, and where each of its ranks is. */
#ifndef STEER_STATE_H
#define STEER_STATE_H
#include "group/task.h"

/* STEER_TOLD: ranks that a message names. */
enum { STEER_TOLD = 4, STEER_NAME = 64, STEER_LINE = 260 };

enum steer_phase {
	WAITS,	/* behind another one */
	ASKS,	/* the ranks have not all said where they are */
	AGREED, /* on a step; some have not come there */
	LEFT,	/* the ranks go on: a part of the cell has ended */
	FAILS	/* the ranks go on, and are asked where they are */
};

struct steer_rank {
	struct steer *s;
	struct rank *k;
	uint64_t tag;	  /* of a Tsteer or Tstack; 0: none is to be answered */
	uint64_t steps;	  /* the same of a Tsteps */
	bool ended;	  /* the cell, as it says */
	bool answered;	  /* where it is in the cell */
	bool arrived;	  /* it waits */
	enum clock clock; /* at which it has */
	uint32_t ticks[CLOCKS];
	char in[STEER_NAME], line[STEER_LINE]; /* the collective, FILE:N; "": none, not known */

	/* of a watch */
	uint64_t position; /* of its last tick: see watch.c */
	bool hit;	   /* the expression is true there */
	bool absent;	   /* it did not come in time: it is not waited for */
};

/* How a watch differs: the ranks have said where they are; the running cell has ended on a rank
 * (returns true if that has ended the watch, and s is freed); the watch ends. */
struct steer_watch {
	void (*begin)(struct steer *s);
	bool (*rank_over)(struct steer *s, struct rank *k);
	void (*over)(struct steer *s);
};

struct steer {
	struct task *w;
	struct cell *around; /* referenced */
	struct steer_rank *rank;
	int n, left, arrived; /* left: answers to come */
	enum steer_phase phase;
	enum clock clock; /* CLOCKS: the next tick of any */
	uint32_t step;
	uint64_t period_us; /* the longest time of a rank's last step */
	struct timer *timer;
	void (*placed)(struct steer *s); /* steer_ask_places() is done */

	const struct steer_watch *watch; /* NULL: it is none */
	uint64_t hit; /* the position at which the ranks are to stop; UINT64_MAX: not known */
	bool told;    /* that the expression fails */
};

/* The one of this task that is queued on this rank, NULL if it does not wait any longer. */
struct steer *steer_find(struct rank *k, uint32_t number);
struct steer_rank *steer_rank_of(struct steer *s, const struct rank *k);
/* Nsteer: step 0, the ranks go on. */
void steer_tell(struct steer *s, enum clock clock, uint32_t step);
/* Ends it; frees s. error 0: as it should. */
void steer_end(struct steer *s, int error, const char *text);
/* Asks the ranks that have not come where they are, then calls s->placed. */
void steer_ask_places(struct steer *s);
/* Append those ranks for which is() is true, "0,2 and 3 more", and where they stand, "rank 1 stands
 * at step 12, at x.py:3; rank 2 …". Return how many there are. */
typedef bool steer_rank_is(const struct steer_rank *r);
int steer_add_ranks(const struct steer *s, steer_rank_is *is, struct buf *out);
int steer_add_places(const struct steer *s, enum clock clock, steer_rank_is *is, struct buf *out);
/* The clock that is set for the cell, else the best that has ticked on any rank; CLOCKS: none. */
enum clock steer_best_clock(const struct steer *s);

#endif
