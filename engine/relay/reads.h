/*
 * Ranges of objects that the daemon asks for, on the far side. It asks for much ahead: its Treads
 * wait here, and what ranks answer goes on in pieces as there is room, of each object in turn.
 */
#ifndef READS_H
#define READS_H
#include "conn.h"
#include "relay/packet.h"
#include "relay/window.h"

struct reads;

struct reads *reads_new(struct conn *agent, struct link *l, struct windows *ws);
void reads_free(struct reads *rs); /* NULL-safe */
/* A Tread of the daemon. */
void reads_asked(struct reads *rs, const struct msg *m);
/* An Nfree of the daemon: nobody wants what was asked of that object. It is answered EINTR. */
void reads_unpinned(struct reads *rs, const struct msg *m);
/* An answer of the agent, or of a window. True: it is taken, nothing of it is to be passed on. */
bool reads_answered(struct reads *rs, const struct msg *m);
/* The engine has ended, and answers no more. */
void reads_ended(struct reads *rs, unsigned slot);
/* Sends a piece; false: there is nothing to send. */
bool reads_more(struct reads *rs);

#endif
