/* SHA-256, as FIPS 180-4 has it: what says that a program over there is the one that is here. */
#ifndef SHA256_H
#define SHA256_H
#include "util.h"

enum { SHA256_HEX = 64 };

/* Of n bytes, in hexadecimal and a NUL. */
void sha256_hex(const void *p, size_t n, char hex[SHA256_HEX + 1]);

#endif
