/* A framed connection on an event loop. Sends and receives struct msg; a Unix socket also passes
 * descriptors. */
#ifndef CONN_H
#define CONN_H
#include "loop.h"
#include "wire.h"

struct conn;

/* m and what it points to are valid until the call returns. The callee owns m->fd: it sets it to -1
 * to keep the descriptor, else conn closes it. */
typedef void conn_msg_fn(void *arg, struct msg *m);
/* Called once, from the loop, when the connection is lost. e->no is not 0 if the peer sent
 * malformed data or sending failed. */
typedef void conn_close_fn(void *arg, const struct err *e);

/* Takes ownership of both descriptors, which may be the same one, and makes them non-blocking. */
struct conn *conn_new(
    struct loop *l, int rfd, int wfd, conn_msg_fn *msg, conn_close_fn *close, void *arg);
/* NULL-safe; safe inside a callback. Drops what is still queued. */
void conn_free(struct conn *c);

/*
 * Packs and sends a message as wire_pack does. The caller keeps ownership of fd (or -1). Does not
 * block: what cannot be sent at once is queued, with a duplicate of fd.
 *
 * If a process on either side has run out of descriptors, only the message that needs one fails: a
 * T is answered by an Rerror with EMFILE (from the loop, never inside the call), an R is replaced
 * by such an Rerror, and an N arrives without its descriptor (m->fd is -1). The object of an Rget
 * that could not be received is let go by an Nfree.
 */
void conn_send(struct conn *c, int type, int flags, unsigned slot, uint64_t tag, int fd, ...);
/* Forwards a message with its body, slot, tag and descriptor. */
void conn_forward(struct conn *c, const struct msg *m);
/* From now on, equal messages to or from several engines in one round of the loop are sent as one
 * message (Nmany) at the end of the round; see gather.h. */
void conn_gather(struct conn *c);
/* Sends one message to several engines, packed once. who is as in Nmany, without tails. */
void conn_send_many(struct conn *c, struct slice who, int type, int flags, ...);
/* Calls cut, instead of sending Rerror, for a T that arrived without its descriptor. For an owner
 * that does not send through this connection. */
void conn_on_cut(struct conn *c, conn_msg_fn *cut);
/* Calls send, instead of sending it, for each message with a descriptor: the peer is on another
 * host. It does not own m->fd. */
void conn_on_fd(struct conn *c, conn_msg_fn *send);
/* c is a lane next to `first`, which is freed with it or later: what has come by `first` is handed
 * over before what comes by c, descriptors come as blobs (blob.h), and what c itself has to say
 * goes over `first`. */
void conn_beside(struct conn *c, struct conn *first);
/* Hands over what has come. c may be lost in it. */
void conn_take_all(struct conn *c);
/* Answers a T that is not sent after all, by an Rerror, from the loop. Not once it is lost. */
void conn_refuse(struct conn *c, unsigned slot, uint64_t tag, const struct err *e);
size_t conn_queued(const struct conn *c); /* bytes not yet sent */
/* Sends what was gathered. Is something not sent yet? */
bool conn_waits(struct conn *c);
int conn_fd(const struct conn *c); /* the reading descriptor */
/* Blocks until a message can be handled, for ms at most; handles it outside the loop: while nobody
 * is served yet. */
void conn_wait(struct conn *c, int ms);
/* Blocks until everything queued is sent or the peer is gone: for the final messages of a
 * process. */
void conn_flush(struct conn *c);

#endif
