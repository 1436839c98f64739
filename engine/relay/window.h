/*
 * Objects on GPUs, on the far side: their rank copies ranges into memory that it shares with who
 * reads (GET_DEVICE), which is this process. The daemon is told to ask by Tread (GET_READ), and is
 * answered from there.
 */
#ifndef WINDOW_H
#define WINDOW_H
#include "conn.h"
#include "relay/packet.h"

struct windows;

/* An answer to a Tread that window_asked() took: m lives until the call returns. */
typedef void window_fn(void *arg, const struct msg *m);

struct windows *windows_new(struct conn *agent, struct link *l, window_fn *answered, void *arg);
/* A Tread. True: it is taken, the agent need not have it. */
bool window_asked(struct windows *ws, const struct msg *m);
/* An Nfree goes to the agent. */
void window_freed(struct windows *ws, const struct msg *m);
/* A message of the agent. True: it is taken, the daemon need not have it. */
bool window_answered(struct windows *ws, const struct msg *m);

#endif
