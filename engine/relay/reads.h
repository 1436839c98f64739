/*
 * Ranges of objects that the daemon requests, on the far side. It reads far ahead: its Treads wait
 * here, and ranks' replies are forwarded in pieces as the link has room, each object in turn.
 */
#ifndef READS_H
#define READS_H
#include "conn.h"
#include "relay/packet.h"
#include "relay/window.h"

struct reads;

struct reads *reads_new(struct conn *agent, struct link *l, struct windows *ws);
/* Handles a Tread from the daemon. */
void reads_asked(struct reads *rs, const struct msg *m);
/* Handles an Nfree from the daemon: what it requested of that object is no longer wanted, and is
 * answered with EINTR. */
void reads_unpinned(struct reads *rs, const struct msg *m);
/* Handles a reply of the agent or a window. Returns true if it was consumed, not to be
 * forwarded. */
bool reads_answered(struct reads *rs, const struct msg *m);
/* The engine at slot has exited, and replies no more. */
void reads_ended(struct reads *rs, unsigned slot);
/* Sends one piece. Returns false if there is nothing to send. */
bool reads_more(struct reads *rs);

#endif
