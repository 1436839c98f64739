/* Descriptors whose contents are sent as bytes: once, however many frames they go with. */
#ifndef OUTBOX_H
#define OUTBOX_H
#include "relay/packet.h"

struct outbox;

struct outbox *outbox_new(struct loop *loop, struct link *l);
void outbox_free(struct outbox *o); /* NULL-safe */
/* Sends the frame, and the contents of its descriptor as the link has room; they must not change
 * from then on. Returns the blob id, or 0 with *e set. The caller holds it until
 * outbox_release(). */
uint32_t outbox_send(struct outbox *o, const struct msg *m, struct err *e);
/* A frame no longer needs the blob. After the last one, the rest is not sent, and the other side
 * drops what waits for it. */
void outbox_release(struct outbox *o, uint32_t id);
/* The same if that was the last one and bytes remain unsent; else returns false and does
 * nothing. */
bool outbox_release_rest(struct outbox *o, uint32_t id);
/* As outbox_send(), for one frame that gets no reply. The descriptor of an Rget may be that of a
 * pipe from the agent. If it ends early, the agent has answered the request otherwise. Returns
 * false with *e set on failure. */
bool outbox_answer(struct outbox *o, const struct msg *m, struct err *e);
/* Does not send the rest of what outbox_answer() sends of a file for this slot and tag. Returns
 * false if there is none. */
bool outbox_cancel(struct outbox *o, unsigned slot, uint64_t tag);
/* Sends one piece. Returns false if there is nothing to send. */
bool outbox_more(struct outbox *o);

#endif
