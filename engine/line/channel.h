/*
 * A pair of byte streams that carries packets: splits what arrives into packets, and writes the
 * link's own short control words between two packets that the link writes.
 *
 *   size[4] type[1] body          little-endian; size is that of the whole packet
 */
#ifndef CHANNEL_H
#define CHANNEL_H
#include "err.h"
#include "loop.h"

enum { CHANNEL_HEADER = 5 }; /* size and type */

struct channel;

struct channel_ops {
	/* A packet has arrived; body is valid until the call returns. Returning -errno ends the
	 * channel, with *e as the reason. The callback may close the channel, and open it again. */
	int (*packet)(struct channel *c, int type, struct slice body, struct err *e);
	/* All complete packets received so far have been delivered. */
	void (*taken)(struct channel *c);
	/* The stream is writable again: call channel_write() or channel_flush(), or channel_rest()
	 * if nothing is left to write. */
	void (*room)(struct channel *c);
	/* The streams have ended and are closed. why->no: the error, or 0. */
	void (*ended)(struct channel *c, const struct err *why);
};

struct channel {
	struct loop *loop;
	const struct channel_ops *ops;
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
bool channel_open(struct channel *c, int rfd, int wfd);
void channel_close(struct channel *c);
/* Handles bytes that were read from the streams earlier. */
void channel_early(struct channel *c, struct slice bytes);
void channel_header(char *p, size_t size, int type);
/* Queues a word of the link's own, to be written by channel_flush(). */
void channel_word(struct channel *c, int type, uint64_t v);
/* Queues the rest of a packet that is partly written and then abandoned, in place of the words. */
void channel_finish(struct channel *c, const char *p, size_t n);
/* Writes the queued words. Returns false if some of them remain. */
bool channel_flush(struct channel *c);
/* Writes from p + *done on, as much as the stream accepts, and advances *done. Returns true once
 * all n bytes are out. */
bool channel_write(struct channel *c, const char *p, size_t n, size_t *done);
/* Nothing is left to write: stops waiting for the stream to become writable. */
void channel_rest(struct channel *c);

#endif
