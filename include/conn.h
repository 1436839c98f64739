/* A framed connection on a loop: sends and receives struct msg, with descriptors where it is a Unix
 * socket. */
#ifndef CONN_H
#define CONN_H
#include "loop.h"
#include "wire.h"

struct conn;

/* m and what it points to live until the call returns; m->fd is the callee's (set it to -1 if you
 * keep it, else conn closes it). */
typedef void conn_msg_fn(void *arg, struct msg *m);
/* Called once, from the loop, when the other side has gone or spoke nonsense (e->no != 0). */
typedef void conn_close_fn(void *arg, const struct err *e);

/* Owns both descriptors (which may be one and the same); makes them non-blocking. */
struct conn *conn_new(
    struct loop *l, int rfd, int wfd, conn_msg_fn *msg, conn_close_fn *close, void *arg);
/* NULL-safe; safe inside a callback. What is still queued is dropped. */
void conn_free(struct conn *c);

/*
 * Packs and sends as wire_pack does; fd (or -1) stays the caller's. Never blocks: what does not go
 * out now is queued, with a duplicate of fd.
 *
 * Where a process has no descriptor left, on either side, only what needed it fails: a T is
 * answered by Rerror with EMFILE (from the loop, never inside the call), in the place of an R goes
 * or comes such an Rerror, an N is there without its descriptor (m->fd -1).
 */
void conn_send(struct conn *c, int type, int flags, unsigned slot, uint32_t tag, int fd, ...);
/* Passes a message on: same body, its own slot, tag and descriptor. */
void conn_forward(struct conn *c, const struct msg *m);
/* From now on what several engines get, or say, alike in one round of the loop is sent as one
 * message (Nmany), at the end of the round; gather.h. */
void conn_gather(struct conn *c);
/* An Nmany that comes is given to msg as it is, and not as the messages that it stands for. */
void conn_take_whole(struct conn *c);
/* Sends what several engines get, packed once; who: as Nmany has it, without tails. */
void conn_send_many(struct conn *c, struct slice who, int type, int flags, ...);
/* cut is called, in place of Rerror, for a T that came without its descriptor: for one who does not
 * send by this connection. */
void conn_on_cut(struct conn *c, conn_msg_fn *cut);
size_t conn_queued(const struct conn *c); /* bytes that wait */
int conn_fd(const struct conn *c);	  /* the reading descriptor */
/* Blocks until everything queued is out or the peer is gone: for the last words of a process. */
void conn_flush(struct conn *c);

#endif
