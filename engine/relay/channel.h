/*
 * A pair of byte streams that carries packets: cuts them out of what comes, and writes short words
 * of the link's own between two of those that the link writes.
 *
 *   size[4] type[1] body          little-endian; size counts all of it
 */
#ifndef CHANNEL_H
#define CHANNEL_H
#include "err.h"
#include "loop.h"

enum { CHANNEL_HEADER = 5 }; /* size and type */

struct channel;

struct channel_ops {
	/* A packet came; body lives until the call returns. -errno ends the channel, with e. It may
	 * be closed inside, and opened again. */
	int (*packet)(struct channel *c, int type, struct slice body, struct err *e);
	/* All packets that came at once were given. */
	void (*taken)(struct channel *c);
	/* What did not go in goes in now: channel_write() or channel_flush(), else
	 * channel_rest(). */
	void (*room)(struct channel *c);
	/* Its streams have ended (e->no: with what error), and are closed. */
	void (*ended)(struct channel *c, const struct err *why);
};

struct channel {
	struct loop *loop;
	const struct channel_ops *ops;
	void *arg;    /* of who has it */
	int rfd, wfd; /* -1: none */
	struct watch *in, *out;
	unsigned opened;    /* counts channel_open() */
	struct buf got;	    /* bytes that are no whole packet yet */
	uint64_t last_word; /* when something came */
	struct buf between; /* words that go between two packets */
	size_t between_done;
};

/* Speaks on these streams, one descriptor or two, and closes them in the end. c is closed. */
void channel_open(struct channel *c, int rfd, int wfd);
void channel_close(struct channel *c);
/* What was read of its streams before. */
void channel_early(struct channel *c, struct slice bytes);
void channel_header(char *p, size_t size, int type);
/* A word of the link's own, to be written by channel_flush(). */
void channel_word(struct channel *c, int type, uint64_t v);
/* The other part of a packet that will not be gone on with: in the place of the words. */
void channel_finish(struct channel *c, const char *p, size_t n);
/* Writes the words. False: not all of them yet. */
bool channel_flush(struct channel *c);
/* Writes some of n bytes, from *done on. True: all are out. */
bool channel_write(struct channel *c, const char *p, size_t n, size_t *done);
/* There is nothing to be written. */
void channel_rest(struct channel *c);

#endif
