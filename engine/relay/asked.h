/* Questions that went to the other side: what is to be done when they are answered. */
#ifndef ASKED_H
#define ASKED_H
#include "relay/arrival.h"
#include "relay/outbox.h"

struct asked;

struct asked *asked_new(struct outbox *out, struct arrivals *arrivals);
void asked_free(struct asked *a); /* NULL-safe */
/* m, a T, went there with these bytes (0: none). */
void asked_add(struct asked *a, const struct msg *m, uint32_t blob);
/* Nobody waits for that answer. True: its bytes were not all sent, so there will be none. */
bool asked_cancel(struct asked *a, unsigned slot, uint32_t tag);
/* m came from there. True: it answers a question that a rank's service threads, or its I/O thread,
 * were asked. */
bool asked_answered(struct asked *a, const struct msg *m);

#endif
