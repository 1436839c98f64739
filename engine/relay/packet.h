/*
 * What the relays say to each other over their link, one packet each. Numbers are little-endian, as
 * in wire.h.
 *
 * A wire frame with a descriptor is sent as a blob: the contents of the descriptor, in pieces, and
 * the frame, which the other side forwards with a memfd once all bytes have arrived. Replies with
 * bytes of objects, and what ranks print, come from the agent on sockets of their own, and are sent
 * in pieces.
 */
#ifndef PACKET_H
#define PACKET_H
#include "relay/link.h"
#include "wire.h"

enum {
	PACKET_FRAME = LINK_PACKET_MIN, /* a frame without a descriptor */
	PACKET_BLOB,			/* id[4] size[8]: a blob begins */
	PACKET_BYTES,			/* id[4] and the next bytes of it */
	PACKET_WITH,			/* id[4] and a frame that needs all of them */
	PACKET_FREE,   /* id[4]: no frame needs it any more; if incomplete, waiters are dropped */
	PACKET_BULK,   /* the next bytes of frames, one after the other: replies */
	PACKET_OUTPUT, /* likewise, of output, and of what must not overtake it */
	PACKET_LOG,    /* lines for the daemon's log */
	PACKET_END,    /* the daemon is gone: send PACKET_GONE and exit */
	PACKET_GONE,   /* status[4]: the agent has exited, by wait(2) */
	PACKET_OFFER,  /* port[2] tokens[32] and the name of a variable on the far side that holds
			  the address of this side: connect (offer.h) */
	PACKET_REFUSAL /* text: why that is impossible */
};

/*
 * Lines that the command prints before the first packet; all of them begin with BANNER. Other
 * lines, from a login script for example, are ignored.
 */
#define BANNER "@ddipfs "
#define BANNER_WANT "want"     /* MACHINE: send the programs */
#define BANNER_ERROR "error"   /* TEXT: it failed */
#define BANNER_FAR "far"       /* WIRE_VERSION DIR SECRET: a new session, and the link begins */
#define BANNER_ATTACH "attach" /* send the secret, and the link resumes */
#define BANNER_GONE "gone"     /* the session no longer exists */

enum { SECRET_SIZE = 32 }; /* characters; whoever knows them may attach to a session */

/* Parses the argument of --linger, in seconds, into *ms. Returns false if it is invalid. */
bool packet_linger(const char *seconds, uint64_t *ms);
/* Sends an id (or another number), followed by body. */
void packet_send(struct link *l, int type, bool bulk, uint32_t id, struct slice body);
/* Removes the id from the beginning of body. Returns false if there is none. */
bool packet_id(struct slice *body, uint32_t *id);
/* Both send a conn's message as a packet without its descriptor. The receiver of PACKET_WITH sets
 * the flag of the descriptor again. */
void packet_send_frame(struct link *l, const struct msg *m);
void packet_send_with(struct link *l, uint32_t id, const struct msg *m);
/* Sends an Rerror in reply to the request with this tag. */
void packet_send_error(struct link *l, unsigned slot, uint64_t tag, const struct err *e);
/* Compares n bytes in constant time. */
bool packet_is_secret(const void *said, const void *secret, size_t n);
/* Is this the Tzygote of a group whose on_preempt signal is SIGTERM? */
bool packet_spares_term(const struct msg *m);
/* Fills e with the error for a request that was cancelled by Ncancel. */
void packet_cancelled(struct err *e);
/* Parses the frame that makes up all of body. Returns 0, or -errno with *e set. */
int packet_frame(struct slice body, struct msg *m, struct err *e);

#endif
