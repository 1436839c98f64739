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
/* A frame needs them no more; behind the last one the rest is not sent, and the other side drops
 * what waits for it. */
void outbox_release(struct outbox *o, uint32_t id);
/* The same if that was the last one and there is a rest. False: all stays as it is. */
bool outbox_release_rest(struct outbox *o, uint32_t id);
/* As outbox_send(), for one frame that nobody answers. False: e says why not. */
bool outbox_answer(struct outbox *o, const struct msg *m, struct err *e);
/* The rest of what outbox_answer() sends for this slot and tag stays here. False: there is none. */
bool outbox_cancel(struct outbox *o, unsigned slot, uint32_t tag);
/* The same for all that it sends for this slot: its engine has ended. */
void outbox_ended(struct outbox *o, unsigned slot);
/* Sends a piece; false: there is nothing to send. */
bool outbox_more(struct outbox *o);

#endif
