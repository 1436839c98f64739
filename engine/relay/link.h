/*
 * The link between two relays: packets over a pair of byte streams that may break and be replaced.
 * Each packet is kept until the other side has said that it took it; on new streams both say how
 * many they took, and go on from there: nothing is lost, nothing comes twice.
 *
 * Bulk (objects, output) is asked for in pieces while there is room: no more of it is on its way
 * than a window that shrinks when the stream is slow, and the pieces with it. So a packet that is
 * no bulk waits for little.
 *
 * Streams that are slow by nature can be left for a connection beside them (offer.h): everything
 * goes by that from then on. The streams stay, with nothing to carry: their end is still the end of
 * all, and when the other connection ends everything goes by them again.
 */
#ifndef LINK_H
#define LINK_H
#include "err.h"
#include "loop.h"

enum {
	LINK_PACKET_MIN = 16,	/* types below are the link's own */
	LINK_PACKET_MAX = 255,	/* and there are none beyond */
	LINK_PIECE = 128 << 10, /* bytes of bulk in a packet, at most */
	LINK_DEAD_MS = 10000	/* without a word the streams are dead, whatever the kernel says */
};

struct link;

struct link_ops {
	/* A packet came. body lives until the call returns. */
	void (*packet)(void *arg, int type, struct slice body);
	/* There is room: sends one piece of bulk. False: there is none. */
	bool (*more)(void *arg);
	/* The other side speaks on these streams, or on the connection of link_move(). */
	void (*up)(void *arg);
	/* The streams have ended, and are closed (e->no: with what error). Link packets wait. */
	void (*down)(void *arg, const struct err *why);
	/* The connection of link_move() has ended, why->no: with what error. The streams are used
	 * again. */
	void (*back)(void *arg, const struct err *why);
};

struct link *link_new(struct loop *loop, const struct link_ops *ops, void *arg);
void link_free(struct link *l); /* NULL-safe */
/* Speaks on these streams from now on, and closes them in the end. early: what was read of them
 * already. Older ones are closed without a word. */
void link_attach(struct link *l, int rfd, int wfd, struct slice early);
void link_detach(struct link *l);
/* Moves to this connection, which the other side does, too; closes it in the end. False: it is
 * closed now, because the link is not up, or has moved already. */
bool link_move(struct link *l, int fd);
/* Queues a packet: both parts, one behind the other. */
void link_send(struct link *l, int type, bool bulk, struct slice head, struct slice body);
void link_more(struct link *l); /* there is bulk to be asked for */
bool link_is_up(const struct link *l);
/* Packets that the other side has not taken yet. */
size_t link_unacked(const struct link *l);
/* Bytes of bulk that the next packet of it should have, at most LINK_PIECE. */
size_t link_piece(const struct link *l);

#endif
