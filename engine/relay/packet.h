/*
 * What the relays say to each other by their link: one packet each. Numbers are little-endian, as
 * in wire.h.
 *
 * A frame of the wire with a descriptor comes as a blob: the bytes that the descriptor stands for,
 * in pieces, and the frame, which the other side passes on with a memfd when the bytes are there.
 * An answer with bytes of an object comes in pieces as it is.
 * What ranks print comes in pieces too, to which the marks of frames are matched there.
 */
#ifndef PACKET_H
#define PACKET_H
#include "relay/link.h"
#include "wire.h"

enum {
	PACKET_FRAME = LINK_PACKET_MIN, /* a frame without a descriptor */
	PACKET_BLOB,			/* id[4] size[8]: bytes that follow */
	PACKET_BYTES,			/* id[4] and the next of them */
	PACKET_WITH,			/* id[4] and a frame that needs them all */
	PACKET_FREE,   /* id[4]: no frame needs them any more; incomplete: what waits is dropped */
	PACKET_PART,   /* id[4] left[4] and the next bytes of a frame; how many are still to come */
	PACKET_CUT,    /* id[4]: they do not come; the question was answered otherwise */
	PACKET_OUTPUT, /* slot[2] stream[1] record[8] and bytes that a rank printed */
	PACKET_SKIP,   /* slot[2] out[8] err[8] disp[8] records[8]: what was printed up to here does
			  not come */
	PACKET_LOG,    /* lines for the daemon's log */
	PACKET_END,    /* the daemon has gone: say PACKET_GONE, and end */
	PACKET_GONE,   /* status[4]: the agent has ended, by wait(2) */
	PACKET_OFFER,  /* port[2] secret[32] and the name of a variable over there, which has the
			  address of this side: connect (proof.h) */
	PACKET_REFUSAL /* text: why that can't be */
};

/*
 * Lines that come before the first packet, from the command that was started: all begin so. What
 * comes between them, from a login script say, is passed over.
 */
#define BANNER "@ddipfs "
#define BANNER_WANT "want"     /* MACHINE: the programs are to be sent */
#define BANNER_ERROR "error"   /* TEXT: it can't be done */
#define BANNER_FAR "far"       /* WIRE_VERSION DIR SECRET: a new session, and the link begins */
#define BANNER_ATTACH "attach" /* say the secret, and the link goes on */
#define BANNER_GONE "gone"     /* there is no such session any more */

enum { SECRET_SIZE = 32 }; /* characters that know a session */

/* The argument of --linger, in seconds, as milliseconds. False: it is no such time. */
bool packet_linger(const char *seconds, uint64_t *ms);
/* An id (or another number) and what comes with it. */
void packet_send(struct link *l, int type, bool bulk, uint32_t id, struct slice body);
/* The id at the beginning of body, which is cut off. False: there is none. */
bool packet_id(struct slice *body, uint32_t *id);
/* A message of a conn as a packet; without its descriptor, whose flag is set for with. */
void packet_send_frame(struct link *l, const struct msg *m);
void packet_send_with(struct link *l, uint32_t id, const struct msg *m);
/* Is this the Tzygote of a group that is told of its preemption by SIGTERM? */
bool packet_spares_term(const struct msg *m);
/* Why what an Ncancel names is not done. */
void packet_cancelled(struct err *e);
/* The frame that is all of body. */
int packet_frame(struct slice body, struct msg *m, struct err *e);

#endif
