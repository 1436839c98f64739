/* Descriptors that are sent as bytes: each once, however many frames it goes with. */
#ifndef OUTBOX_H
#define OUTBOX_H
#include "relay/packet.h"

struct outbox;

struct outbox *outbox_new(struct link *l);
void outbox_free(struct outbox *o); /* NULL-safe */
/* An id that no blob had, for one whose bytes the caller sends. */
uint32_t outbox_id(struct outbox *o);
/* Sends the frame, and the bytes that its descriptor stands for, as there is room for them; they do
 * not change any more. The id is kept by its caller until outbox_release(). 0: e says why not. */
uint32_t outbox_send(struct outbox *o, const struct msg *m, struct err *e);
void outbox_release(struct outbox *o, uint32_t id);
/* Sends a piece; false: there is nothing to send. */
bool outbox_more(struct outbox *o);

#endif
