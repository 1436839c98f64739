/*
 * The link between two relays: packets over a pair of byte streams that may break and be replaced.
 * Each packet is kept until the other side has acknowledged it. On new streams both sides say how
 * many packets they have received, and resume from there: no packet is lost or delivered twice.
 *
 * Bulk (objects, output) is requested in pieces when there is room. The amount in flight is limited
 * by a window; a slow stream shrinks the window, and the pieces with it. A packet that is not bulk
 * therefore never waits for much.
 *
 * Streams that are inherently slow can be replaced by a direct connection (offer.h), which carries
 * everything from then on. The streams stay open, with nothing to carry: their end still ends the
 * link, and if the direct connection ends, everything goes over them again.
 */
#ifndef LINK_H
#define LINK_H
#include "err.h"
#include "loop.h"

enum {
	LINK_PACKET_MIN = 16,	/* lower types are the link's own */
	LINK_PACKET_MAX = 255,	/* the highest type */
	LINK_PIECE = 128 << 10, /* bytes of bulk in a packet, at most */
	LINK_DEAD_MS = 10000	/* a stream silent this long is dead, whatever the kernel says */
};

struct link;

struct link_ops {
	/* A packet has arrived. body is valid until the call returns. */
	void (*packet)(void *arg, int type, struct slice body);
	/* There is room: sends one piece of bulk. Returns false if there is none. */
	bool (*more)(void *arg);
	/* The other side has responded on these streams, or on a direct connection. */
	void (*up)(void *arg);
	/* The streams have ended and are closed. why->no: the error, or 0. Packets are kept. */
	void (*down)(void *arg, const struct err *why);
	/* The direct connection has ended (why->no: the error, or 0); back to the streams. */
	void (*back)(void *arg, const struct err *why);
};

struct link *link_new(struct loop *loop, const struct link_ops *ops, void *arg);
void link_free(struct link *l); /* NULL-safe */
/* Uses these streams from now on, and takes ownership of them. early: bytes that were already read
 * from them. Older streams are closed without a callback. */
void link_attach(struct link *l, int rfd, int wfd, struct slice early);
void link_detach(struct link *l);
/* Uses this connection, as the other side does, and takes ownership of it; the streams stay open.
 * Returns false, with fd closed, if the link is not up or has one, or if no descriptor is free. */
bool link_attach_direct(struct link *l, int fd);
/* Queues a packet: head, followed by body. */
void link_send(struct link *l, int type, bool bulk, struct slice head, struct slice body);
/* Makes a packet of bulk of what read(2) gives from fd now, n bytes at most. Returns NULL if it
 * gives none; else the caller sends it by link_add(). */
struct packet *link_read(int type, int fd, size_t n);
void link_add(struct link *l, struct packet *p);
void link_more(struct link *l); /* there is new bulk to request */
/* While it is held, the other side learns nothing of what has been received: it sends a window of
 * bulk at most, on each new pair of streams. */
void link_hold(struct link *l, bool held);
bool link_is_up(const struct link *l);
/* Number of packets that the other side has not acknowledged yet. */
size_t link_unacked(const struct link *l);
/* How much bulk the next packet of it should have, in bytes; at most LINK_PIECE. */
size_t link_piece(const struct link *l);

#endif
