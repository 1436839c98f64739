/* Frames that arrive in pieces (PACKET_PART), on the near side. */
#ifndef PARTS_H
#define PARTS_H
#include "relay/packet.h"

struct parts;

/* Receives a complete frame; m is valid until the call returns. */
typedef void parts_fn(const struct msg *m);

struct parts *parts_new(parts_fn *whole);
void parts_free(struct parts *ps); /* NULL-safe */
/* Handles a PACKET_PART or PACKET_CUT. Returns -EBADMSG on a protocol violation. */
int parts_take(struct parts *ps, int type, struct slice body, struct err *e);

#endif
