/* Live readers of what ranks print: what rankK/follow, log and a cell's stream share. */
#ifndef LIVE_H
#define LIVE_H
#include "spool.h"
#include "tree/tree.h"

struct subtask;

/* One rank's output, taken in order. */
struct live_rank {
	int rank;
	struct spool_cursor at, start;	/* start: where this reader began */
	struct subtask *subtask;	/* of a cell's stream; NULL: everything */
	bool placed;			/* at is set */
	struct buf part[SPOOL_STREAMS]; /* a line (a character) that is not whole yet */
};

struct live;
/* Makes what a reader gets of n bytes that a rank printed. */
typedef void live_take_fn(struct live *l, struct live_rank *s, int stream, const char *p, size_t n);
/* Makes a line that tells of bytes that were dropped. */
typedef void live_tell_fn(struct live *l, uint64_t lost);

struct live {
	struct live_rank *ranks;
	int n;
	struct buf ready; /* made; what was read stays a while: shells read ahead and seek back */
	uint64_t base, next; /* the file's offset of ready.p[0]; behind the last read */
	uint64_t lost;	     /* bytes that were dropped before they were read, not told of yet */
	bool finished;	     /* nothing more will come */
	live_take_fn *take;
	live_tell_fn *tell;
};

/* A reader of n ranks, which are still to be placed. */
struct live *live_new(int n, live_take_fn *take, live_tell_fn *tell);
void live_free(struct live *l); /* NULL: nothing to do */
/* Its place s begins now, behind what this rank has printed. */
void live_place_now(struct group *g, struct live_rank *s, int rank);
/* Makes more until it reaches `until`, ranks in turn, a bounded piece in one go; what lies before
 * `from` may be forgotten. False: it got so far, or nothing more is there; true: there is more, and
 * it has to go on later. */
bool live_fill(struct group *g, struct live *l, uint64_t from, uint64_t until);
/* Tells how many bytes were dropped before what comes now. */
void live_tell_lost(struct live *l);
/* How much is there from an offset on. */
size_t live_there(const struct live *l, uint64_t offset);
/* For a read before what is kept: at 0 everything is made again, as far as the ranks' output is
 * kept; else the oldest line is given there, behind one that says what is missing. */
void live_go_back(struct live *l, uint64_t offset);
/* Where the range of a read ends. */
uint64_t live_end_of(const struct req *r);
/* Is a read to be answered now? Behind the end it gets nothing, at the end it waits. */
bool live_answers(const struct live *l, const struct req *r);
/* Answers it. */
void live_give(struct live *l, struct req *r);
/* Parks it until there is more; who asked not to wait gets EAGAIN. */
void live_park(struct group *g, struct req *r);
/* The same for one that live_fill() has not done with. */
void live_park_more(struct group *g, struct req *r);
/* Operations of a file whose state is a struct live. */
void live_read(struct file *f, struct req *r);
unsigned live_poll(struct file *f);
void live_release(struct file *f);
/* Readers hear of output by the groups' hooks; once, before any group is made. */
void live_init(void);

#endif
