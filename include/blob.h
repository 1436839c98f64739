/*
 * Descriptors as bytes. No descriptor can be passed to another host: the contents of a file go
 * there in pieces (Nblob), and then the messages that would have brought its descriptor (Nwith),
 * all on one lane and so in this order. This is the receiving side: it puts a memfd in the place of
 * the descriptor, and keeps it until Nforget.
 */
#ifndef BLOB_H
#define BLOB_H
#include "wire.h"

struct blobs;

struct blobs *blobs_new(void);
void blobs_free(struct blobs *b); /* NULL-safe */
/* Is it a message for blobs_take()? */
bool blobs_is(const struct msg *m);
/* Returns 1 if m has brought a message, *whole, which points into m and owns its descriptor. That
 * is -1, with *e as the reason, if there was no memory for the bytes, or no descriptor. Returns 0
 * if it has brought none, and -EBADMSG with *e set if m is malformed. */
int blobs_take(struct blobs *b, const struct msg *m, struct msg *whole, struct err *e);

#endif
