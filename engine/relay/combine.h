/*
 * An object over several ranks of this host, on the far side (Treduce): the ranks are asked for
 * their parts, which are combined here, and one part goes to the daemon.
 */
#ifndef COMBINE_H
#define COMBINE_H
#include "conn.h"
#include "relay/outbox.h"

struct combines;

struct combines *combines_new(
    struct loop *loop, struct conn *agent, struct link *l, struct outbox *out);
/* A Treduce. */
void combine_asked(struct combines *cs, const struct msg *m);
/* Nobody waits for the answer to the one with this tag: it will be an error. */
void combine_cancel(struct combines *cs, unsigned slot, uint32_t tag);
/* A message of the agent. True: it is taken. */
bool combine_answer(struct combines *cs, struct msg *m);
/* The agent has ended, and is not spoken to any more. What is being combined goes on. */
void combines_end(struct combines *cs);
/* The engine has ended. */
void combine_ended(struct combines *cs, unsigned slot);

#endif
