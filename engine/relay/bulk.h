/*
 * What the agent sends on a socket of its own (replies with bytes of objects; rank output), which
 * the far relay reads as the link has room. It passes pieces of these frames on without looking at
 * what is in them, and the near relay brings the pieces together.
 */
#ifndef BULK_H
#define BULK_H
#include "relay/packet.h"

struct bulk;

/* The far side; fd is the socket, and this module's from now on. type: of the packets. */
struct bulk *bulk_new(struct loop *loop, struct link *l, int type, int fd);
/* Sends one piece. Returns false if there is none here. */
bool bulk_more(struct bulk *bulk);

/* The near side: takes the next bytes, after those that *rest has of a frame. Calls whole for each
 * frame that they complete. Returns -EBADMSG if there is no frame in them. */
int bulk_take(
    struct buf *rest, struct slice bytes, void (*whole)(const struct msg *m), struct err *e);

#endif
