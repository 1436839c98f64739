/* Requests pending on the other side, and what to clean up when their replies arrive. */
#ifndef ASKED_H
#define ASKED_H
#include "relay/outbox.h"

struct asked;

struct asked *asked_new(struct outbox *out);
void asked_free(struct asked *a); /* NULL-safe */
/* Records m, a T that was sent. blob: the outbox id of its bytes. */
void asked_add(struct asked *a, const struct msg *m, uint32_t blob);
/* The reply is no longer wanted. Returns true if the request's bytes were not all sent, so that no
 * reply will come. */
bool asked_cancel(struct asked *a, unsigned slot, uint64_t tag);
/* A frame came from the other side. */
void asked_answered(struct asked *a, const struct msg *m);

#endif
