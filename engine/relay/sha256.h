/* SHA-256 (FIPS 180-4), used to check that a program on a remote host is identical to the one here;
 * and HMAC (RFC 2104) with it, by which two sides prove that they know a key. */
#ifndef SHA256_H
#define SHA256_H
#include "util.h"

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 };

/* The hash of n bytes. */
void sha256(const void *p, size_t n, unsigned char sum[SHA256_SIZE]);
/* The HMAC of n bytes, with a key of at most SHA256_BLOCK bytes. */
void sha256_hmac(
    const void *key, size_t key_n, const void *p, size_t n, unsigned char mac[SHA256_SIZE]);

#endif
