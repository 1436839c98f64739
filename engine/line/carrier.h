/*
 * A pair of byte streams that carries packets: splits what arrives into packets, and writes a
 * line's own short control words between two packets that it writes.
 *
 *   size[4] type[1] body          little-endian; size is that of the whole packet
 */
#ifndef CARRIER_H
#define CARRIER_H
#include "err.h"
#include "loop.h"

enum { CARRIER_HEADER = 5 }; /* size and type */

struct carrier;

struct carrier_ops {
	/* A packet has arrived; body is valid until the call returns. Returning -errno ends the
	 * carrier, with *e as the reason. The callback may close the carrier, and open it again. */
	int (*packet)(struct carrier *c, int type, struct slice body, struct err *e);
	/* All complete packets received so far have been delivered. */
	void (*taken)(struct carrier *c);
	/* The stream is writable again: call carrier_write() or carrier_flush(), or carrier_rest()
	 * if nothing is left to write. */
	void (*room)(struct carrier *c);
	/* The streams have ended and are closed. why->no: the error, or 0. */
	void (*ended)(struct carrier *c, const struct err *why);
};

struct carrier {
	struct loop *loop;
	const struct carrier_ops *ops;
	void *arg;    /* the owner's */
	int rfd, wfd; /* -1: closed */
	struct watch *in, *out;
	unsigned opened;    /* how often */
	bool begun;	    /* the owner's; false on new streams */
	struct buf got;	    /* received, not yet a complete packet */
	uint64_t last_word; /* when data last arrived, in ns */
	struct buf between; /* words to write between two packets */
	size_t between_done;
};

/* Uses these streams, one descriptor or two, and takes ownership of them. c must be closed. Returns
 * false, and takes nothing, if it is one and no other descriptor is free. */
bool carrier_open(struct carrier *c, int rfd, int wfd);
void carrier_close(struct carrier *c);
/* Handles bytes that were read from the streams earlier. */
void carrier_early(struct carrier *c, struct slice bytes);
void carrier_header(char *p, size_t size, int type);
/* Queues a word of the line's own, to be written by carrier_flush(). */
void carrier_word(struct carrier *c, int type, uint64_t v);
/* Queues the rest of a packet that is partly written and then abandoned, in place of the words. */
void carrier_finish(struct carrier *c, const char *p, size_t n);
/* Writes the queued words. Returns false if some of them remain. */
bool carrier_flush(struct carrier *c);
/* Writes from p + *done on, as much as the stream accepts, and advances *done. Returns true once
 * all n bytes are out. */
bool carrier_write(struct carrier *c, const char *p, size_t n, size_t *done);
/* Nothing is left to write: stops waiting for the stream to become writable. */
void carrier_rest(struct carrier *c);

#endif
