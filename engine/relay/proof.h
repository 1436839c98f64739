/*
 * What two sides of a new connection say first: each proves that it knows a secret, which itself
 * does not travel there.
 *
 *   listener: its nonce[32]
 *   caller:   its nonce[32] and HMAC(secret, "caller" and both nonces)[32]
 *   listener: HMAC(secret, "listener" and both nonces)[32]
 */
#ifndef PROOF_H
#define PROOF_H
#include "err.h"
#include "loop.h"

enum { PROOF_SECRET = 32, PROOF_MS = 5000 }; /* bytes; the time for all of it */

enum proof_side { PROOF_LISTENER, PROOF_CALLER };

struct proof;
/* It is over, and p ends with this call. fd: the other side knows the secret, the socket is the
 * callee's, and nothing was read that comes behind the proof; -1: why says what went wrong. */
typedef void proof_fn(void *arg, struct proof *p, int fd, const struct err *why);

/* Begins on a connected socket that does not block (the caller's may be about to connect), which it
 * owns. NULL: it is closed, and e says why. */
struct proof *proof_start(struct loop *loop, int fd, enum proof_side side,
    const unsigned char secret[PROOF_SECRET], proof_fn *fn, void *arg, struct err *e);
void proof_end(struct proof *p); /* nobody is told; NULL-safe */
/* n bytes that nobody can guess. 0 or -errno. */
int proof_random(void *p, size_t n, struct err *e);

#endif
