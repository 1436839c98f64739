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
/* m came from there. */
void asked_answered(struct asked *a, const struct msg *m);

#endif
