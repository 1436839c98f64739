/*
 * Objects on GPUs, on the far side: their rank copies ranges into memory that it shares with the
 * reader (GET_DEVICE), which is this process. The daemon is directed to use Tread (GET_READ), and
 * its Treads are answered from that memory.
 */
#ifndef WINDOW_H
#define WINDOW_H
#include "conn.h"
#include "relay/packet.h"

struct windows;

/* A reply to a Tread that window_asked() accepted; m is valid until the call returns. */
typedef void window_fn(void *arg, const struct msg *m);

struct windows *windows_new(
    struct loop *loop, struct conn *agent, struct link *l, window_fn *answered, void *arg);
/* Handles a Tread. Returns true if it was accepted and need not go to the agent. */
bool window_asked(struct windows *ws, const struct msg *m);
/* An Nfree is forwarded to the agent. */
void window_freed(struct windows *ws, const struct msg *m);
/* Handles a message from the agent. Returns true if it was consumed: the daemon need not have
 * it. */
bool window_answered(struct windows *ws, const struct msg *m);

#endif
