/* Bytes that arrive in pieces, and the frames that wait for them and are delivered with a memfd. */
#ifndef INBOX_H
#define INBOX_H
#include "relay/packet.h"

struct inbox;

/* Delivers a frame with m->fd, which remains the inbox's; or without a descriptor, if there was no
 * memory for the bytes (e->no). */
typedef void inbox_fn(void *arg, struct msg *m, const struct err *e);

struct inbox *inbox_new(inbox_fn *deliver, void *arg);
void inbox_free(struct inbox *b); /* NULL-safe */
/* Handles a PACKET_BLOB, _BYTES, _WITH or _FREE. Returns -EBADMSG on a protocol violation. */
int inbox_take(struct inbox *b, int type, struct slice body, struct err *e);
/* Drops the frame with this slot and tag that waits for bytes. Returns false if there is none. */
bool inbox_cancel(struct inbox *b, unsigned slot, uint64_t tag);

#endif
