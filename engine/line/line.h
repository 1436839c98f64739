/*
 * A line leads to an agent on another host. It carries the bytes of lanes, which are sockets at
 * both ends, and does not know what they mean.
 *
 *   daemon == lanes == near.c == packets, by any command == far.c == lanes == agent
 *
 * The command (ssh, srun, docker exec…) runs the far end. dial.c starts it, using launch.c, and
 * bring.c copies the programs there, by bring.sh.
 *
 * Packets go over a pair of byte streams (carrier.c): the command's standard input and output, and
 * after a break those of its successor, which stay.c connects to the far end that is still running.
 * Each packet is kept until the other side has acknowledged it. Whenever the carrier changes, both
 * sides say how many packets they have received, and resume from there: no packet is lost or
 * delivered twice.
 *
 * If the command has little bandwidth, all packets go over a separate connection between the two
 * ends, which they negotiate over the command's streams (direct.c). These stay open, with nothing
 * to carry: their end still ends the line, and if the direct connection ends, everything goes over
 * them again.
 *
 * What comes by the first lane is passed on before what comes later by the others. These, and the
 * log, are bulk: it is requested in pieces when there is room, and what does not fit waits with its
 * sender. The amount in flight is limited by a window; a slow stream shrinks the window, and the
 * pieces with it. A packet that is not bulk therefore never waits for much.
 */
#ifndef LINE_H
#define LINE_H
#include "err.h"
#include "loop.h"

enum { LINE_LANES = 3, LINE_FD = 2 }; /* the first is at descriptor 0, lane i at LINE_FD + i */

enum {
	LINE_PACKET_MIN = 16,	/* lower types are the line's own */
	LINE_PACKET_MAX = 255,	/* the highest type */
	LINE_PIECE = 128 << 10, /* bytes of bulk in a packet, at most */
	LINE_DEAD_MS = 10000	/* a stream silent this long is dead, whatever the kernel says */
};

/* Packets. The first ones are bytes of the lanes. */
enum {
	LINE_LANE = LINE_PACKET_MIN,
	LINE_LOG = LINE_LANE + LINE_LANES, /* lines for the daemon's log */
	LINE_END,			   /* the daemon is gone: send LINE_GONE and exit */
	LINE_GONE,			   /* the agent has exited; a number, by wait(2) */
	LINE_OFFER,  /* port[2], low byte first, tokens[32] and the name of a variable on the far
			side  that holds the address of this side: connect (direct.h) */
	LINE_REFUSAL /* text: why that is impossible */
};

/*
 * Lines that the command prints before the first packet; all of them begin with BANNER. Other
 * lines, from a login script for example, are ignored.
 */
#define BANNER "@ddipfs "
#define BANNER_WANT "want"     /* MACHINE: send the programs */
#define BANNER_ERROR "error"   /* TEXT: it failed */
#define BANNER_FAR "far"       /* VERSION DIR SECRET: a new stay, and packets follow */
#define BANNER_ATTACH "attach" /* send the secret, and packets follow */
#define BANNER_GONE "gone"     /* the stay is over */

enum { SECRET_SIZE = 32 }; /* characters; whoever knows them may attach to a stay */

struct line;

struct line_ops {
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

struct line *line_new(struct loop *loop, const struct line_ops *ops, void *arg);
void line_free(struct line *l); /* NULL-safe */
/* Uses these streams from now on, and takes ownership of them. early: bytes that were already read
 * from them. Older streams are closed without a callback. */
void line_attach(struct line *l, int rfd, int wfd, struct slice early);
void line_detach(struct line *l);
/* Uses this connection, as the other side does, and takes ownership of it; the streams stay open.
 * Returns false, with fd closed, if the line is not up or has one, or if no descriptor is free. */
bool line_attach_direct(struct line *l, int fd);
/* Queues a packet: head, followed by body. */
void line_send(struct line *l, int type, bool bulk, struct slice head, struct slice body);
/* Makes a packet of bulk of what read(2) gives from fd now, n bytes at most. Returns NULL if it
 * gives none; else the caller sends it by line_add(). */
struct packet *line_read(int type, int fd, size_t n);
void line_add(struct line *l, struct packet *p);
void line_more(struct line *l); /* there is new bulk to request */
/* While it is held, the other side learns nothing of what has been received: it sends a window of
 * bulk at most, on each new pair of streams. */
void line_hold(struct line *l, bool held);
bool line_is_up(const struct line *l);
/* Number of packets that the other side has not acknowledged yet. */
size_t line_unacked(const struct line *l);
/* How much bulk the next packet of it should have, in bytes; at most LINE_PIECE. */
size_t line_piece(const struct line *l);

/* ddip-engine relay --host NAME --linger SECONDS --engine auto|PATH [--direct VARIABLE] --
 * COMMAND…: the near end. version: of what the lanes carry; both ends must have the same. Its words
 * are for the daemon, each a record on descriptor 1: "direct": a direct connection is used;
 * "indirect WHY": the launcher's; "error ERRNO TEXT": the last one. Returns the exit status. */
int near_main(char **args, int version);
/* ddip-engine far --linger SECONDS, or far --attach DIR: the far end, which starts the agent. */
int far_main(char **args, int version);

#endif
