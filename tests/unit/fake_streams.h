/* Two sides of a line with the test in between, which carries their data to each other, or does
 * not. Time passes when the test says so. */
#ifndef FAKE_STREAMS_H
#define FAKE_STREAMS_H
#include "line/line.h"
#include "check.h"

enum { SMALL = LINE_PACKET_MIN, BULK };

struct side {
	struct line *l;
	int ours;	     /* the other end of its streams, held by the test; -1: none */
	int direct;	     /* the same for a connection that it moved to */
	unsigned connection; /* which one that is, for the test */
	uint32_t sent[2];    /* small packets and bulk, numbered from 0 */
	uint32_t got[2];
	unsigned ups, downs, backs;
	int why;
	uint32_t bulk_left;
	bool whole_pieces; /* are bulk packets as long as the line wants them? */
};

extern struct loop *loop;
extern uint64_t passed_ms;
extern int send_buffer; /* of the lines' sockets, in bytes; 0: the kernel's default */

void side_new(struct side *s);
void side_free(struct side *s);
/* Sends a packet of n bytes, preceded by its number in 4 bytes, which the other side checks. */
void send_numbered(struct side *s, int type, size_t n);
void unplug(int *fd);
/* Returns a socket for a line; the test keeps the other end. */
int make_plug(int *ours);
/* Gives the side new streams. */
void plug(struct side *s);
/* Carries at most n bytes from one socket to another. Returns how many. */
size_t carry_bytes(int from, int to, size_t n);
/* The same between the streams of two sides. */
size_t carry(struct side *from, struct side *to, size_t n);
/* The same between the connections that they moved to. */
size_t carry_direct(struct side *from, struct side *to, size_t n);
void step(void);
/* Carries until nothing moves any more. */
void settle(struct side *a, struct side *b);
/* Checks that all that was sent has arrived and is acknowledged. */
void check_all_came(const struct side *a, const struct side *b);

#endif
