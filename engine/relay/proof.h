/*
 * The first exchange on a new connection: each side proves that it knows a secret, which is itself
 * never sent.
 *
 *   listener: its nonce[32]
 *   caller:   its nonce[32] and HMAC(secret, "caller" and both nonces)[32]
 *   listener: HMAC(secret, "listener" and both nonces)[32]
 */
#ifndef PROOF_H
#define PROOF_H
#include "err.h"
#include "loop.h"

enum { PROOF_SECRET = 32, PROOF_MS = 5000 }; /* bytes; the time limit for all of it */

enum proof_side { PROOF_LISTENER, PROOF_CALLER };

struct proof;
/* The exchange is over, and p is freed after this call. fd >= 0: the other side knows the secret;
 * the callee owns the socket, and nothing after the proof has been read from it. fd -1: why says
 * what went wrong. */
typedef void proof_fn(void *arg, struct proof *p, int fd, const struct err *why);

/* Starts on a connected non-blocking socket (that of a PROOF_CALLER may still be connecting) and
 * takes ownership of it. Returns NULL with *e set and the socket closed on failure. */
struct proof *proof_start(struct loop *loop, int fd, enum proof_side side,
    const unsigned char secret[PROOF_SECRET], proof_fn *fn, void *arg, struct err *e);
void proof_end(struct proof *p); /* does not call fn; NULL-safe */
/* Fills p with n unpredictable bytes. Returns 0 or -errno. */
int proof_random(void *p, size_t n, struct err *e);

#endif
