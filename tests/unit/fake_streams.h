/* Two sides of a link, and the test between them: it carries what they say to each other, or does
 * not. Time passes when the test says so. */
#ifndef FAKE_STREAMS_H
#define FAKE_STREAMS_H
#include "relay/link.h"
#include "check.h"

enum { SMALL = LINK_PACKET_MIN, BULK };

struct side {
	struct link *l;
	int ours;	  /* the other end of its streams, which the test holds; -1: none */
	int direct;	  /* the same of a connection that it moved to */
	uint32_t sent[2]; /* small packets and bulk, numbered from 0 */
	uint32_t got[2];
	unsigned ups, downs, backs;
	int why;
	uint32_t bulk_left;
	bool whole_pieces; /* of bulk: as long as the link wants them */
};

extern struct loop *loop;
extern uint64_t passed_ms;
extern int
    send_buffer; /* of the sockets of links, in bytes; 0: as large as the kernel makes them */

void side_new(struct side *s);
void side_free(struct side *s);
/* Sends a packet of so many bytes, and 4: its number, which the other side checks. */
void send_numbered(struct side *s, int type, size_t n);
void unplug(int *fd);
/* A socket for a link; the test has its other end. */
int make_plug(int *ours);
/* The side gets new streams. */
void plug(struct side *s);
/* Carries at most n bytes from one socket to another; how many there were. */
size_t carry_bytes(int from, int to, size_t n);
/* The same by the streams of two sides. */
size_t carry(struct side *from, struct side *to, size_t n);
/* The same by the connections that they moved to. */
size_t carry_direct(struct side *from, struct side *to, size_t n);
void step(void);
/* Carries until nothing moves. */
void settle(struct side *a, struct side *b);
/* All that they sent has come, and nobody waits for more. */
void check_all_came(const struct side *a, const struct side *b);

#endif
