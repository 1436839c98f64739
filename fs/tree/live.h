/* Live readers of the ranks' output: the code that rankK/follow, log and a cell's stream share. */
#ifndef LIVE_H
#define LIVE_H
#include "spool.h"
#include "tree/tree.h"

struct subtask;

/* One rank's output, read in order. */
struct live_rank {
	int rank;
	struct spool_cursor at, start;	/* start: where the reader began */
	struct subtask *subtask;	/* in a cell's stream; NULL: all output */
	bool placed;			/* at is set */
	uint64_t lost;			/* bytes dropped before they were read, not yet reported */
	struct buf part[SPOOL_STREAMS]; /* an incomplete line, or character */
};

struct live;
/* Formats n bytes that a rank printed, and adds the result to l->ready. */
typedef void live_take_fn(struct live *l, struct live_rank *s, int stream, const char *p, size_t n);
/* Adds a line that reports the number of bytes dropped, of this rank (-1: of any). */
typedef void live_tell_fn(struct live *l, int rank, uint64_t lost);

struct live {
	struct live_rank *ranks;
	int n;
	/* Formatted output. Data stays for a while after it was read: shells read ahead and seek
	 * back. */
	struct buf ready;
	uint64_t base, next; /* file offset of ready.p[0]; end of the last read */
	bool finished;	     /* no more data will follow */
	bool noticed;	     /* a cell's stream has begun with the notice */
	live_take_fn *take;
	live_tell_fn *tell;
};

/* Creates a reader of n ranks. The caller fills in l->ranks. */
struct live *live_new(int n, live_take_fn *take, live_tell_fn *tell);
void live_free(struct live *l); /* NULL-safe */
/* Initializes s for this rank, starting at the end of what it has printed. */
void live_place_now(struct group *g, struct live_rank *s, int rank);
/* Formats more output, taking the ranks in turn, until it reaches the offset `until`, a bounded
 * amount per call. Data well before `from` may be discarded. Returns false if it got that far or
 * there is no more output; true if there is more, and the caller must continue later. */
bool live_fill(struct group *g, struct live *l, uint64_t from, uint64_t until);
/* Reports the bytes of a rank dropped before its next output, if there are any. */
void live_tell_lost(struct live *l, struct live_rank *s);
/* The number of bytes available from this offset on. */
size_t live_there(const struct live *l, uint64_t offset);
/* Prepares a read before the oldest byte kept. At offset 0, everything is formatted again as far as
 * the ranks' output is kept; elsewhere, the read gets a line that says how much is missing, then
 * the oldest whole line. */
void live_go_back(struct live *l, uint64_t offset);
/* The end of the range of a read. */
uint64_t live_end_of(const struct req *r);
/* Can a read be answered now? At the end of the data it waits; beyond the end it gets no data. */
bool live_answers(const struct live *l, const struct req *r);
/* Answers a read. */
void live_give(struct live *l, struct req *r);
/* Parks a read until more output arrives. A non-blocking read gets EAGAIN. */
void live_park(struct group *g, struct req *r);
/* The same for a read for which live_fill() has more to do. */
void live_park_more(struct group *g, struct req *r);
/* Operations of a file whose state is a struct live. */
void live_read(struct file *f, struct req *r);
unsigned live_poll(struct file *f);
void live_release(struct file *f);
/* Connects the readers to the groups' hooks. Call once, before any group is created. */
void live_init(void);

#endif
