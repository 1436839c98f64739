/* Bytes that come in pieces, and the frames that wait for them: they go on with a memfd. */
#ifndef INBOX_H
#define INBOX_H
#include "relay/packet.h"

struct inbox;

/* A frame can go on: with m->fd, which stays the inbox's; e->no: without, since there is no memory
 * for the bytes. */
typedef void inbox_fn(void *arg, struct msg *m, const struct err *e);

struct inbox *inbox_new(inbox_fn *deliver, void *arg);
void inbox_free(struct inbox *b); /* NULL-safe */
/* One of PACKET_BLOB, _BYTES, _WITH, _FREE. -EBADMSG: the other side speaks nonsense. */
int inbox_take(struct inbox *b, int type, struct slice body, struct err *e);
/* Drops the frame with this slot and tag, which waits for bytes. False: there is none. */
bool inbox_cancel(struct inbox *b, unsigned slot, uint32_t tag);
/* An engine is about to begin there: frames that wait are for the one before, and are dropped. */
void inbox_begins(struct inbox *b, unsigned slot);

#endif
