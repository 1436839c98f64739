/*
 * Messages with a descriptor for an agent on another host: the contents of each file are sent once,
 * before the messages that need it (blob.h).
 */
#ifndef OUTBOX_H
#define OUTBOX_H
#include "conn.h"

struct outbox;

/* fd: of LANE_OBJECTS, this module's from now on; control: what comes by it comes first. */
struct outbox *outbox_new(struct loop *loop, struct conn *control, int fd);
void outbox_free(struct outbox *o); /* NULL-safe */
/* Sends m, a T, when the contents of its descriptor are sent; they must not change from then on. If
 * there is no descriptor left for that, m is answered by an Rerror on control. */
void outbox_send(struct outbox *o, const struct msg *m);
/* The T with this tag is no longer wanted. If it is not sent yet, it never is, and is answered by
 * an Rerror; else an Ncancel follows it. */
void outbox_cancel(struct outbox *o, unsigned slot, uint64_t tag);
/* It is answered, or nobody waits for that any more. Contents that nothing needs are not sent, and
 * are forgotten over there. */
void outbox_release(struct outbox *o, uint64_t tag);

#endif
