/*
 * An object that spans several ranks of this host, on the far side (Treduce): requests the ranks'
 * parts, combines them here, and sends a single part to the daemon.
 */
#ifndef COMBINE_H
#define COMBINE_H
#include "conn.h"
#include "relay/outbox.h"

struct combines;

struct combines *combines_new(
    struct loop *loop, struct conn *agent, struct link *l, struct outbox *out);
/* Handles a Treduce. */
void combine_asked(struct combines *cs, const struct msg *m);
/* The reply to the Treduce with this tag is no longer wanted: it becomes an error. */
void combine_cancel(struct combines *cs, unsigned slot, uint64_t tag);
/* Handles a message from the agent. Returns true if it was consumed. */
bool combine_answer(struct combines *cs, struct msg *m);
/* The agent is gone: nothing more is sent to it. Reductions in progress continue. */
void combines_end(struct combines *cs);
/* The engine at slot has exited. */
void combine_ended(struct combines *cs, unsigned slot);

#endif
