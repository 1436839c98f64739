/* Frames that come in pieces (PACKET_PART), on the near side. */
#ifndef PARTS_H
#define PARTS_H
#include "relay/packet.h"

struct parts;

/* A whole frame: m lives until the call returns. */
typedef void parts_fn(const struct msg *m);

struct parts *parts_new(parts_fn *whole);
void parts_free(struct parts *ps); /* NULL-safe */
/* A PACKET_PART or PACKET_CUT. -EBADMSG: the other side speaks nonsense. */
int parts_take(struct parts *ps, int type, struct slice body, struct err *e);

#endif
