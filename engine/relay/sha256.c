/* SHA-256 and HMAC of bytes in memory. */
#include "relay/sha256.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = SHA256_BLOCK, WORDS = 8, ROUNDS = 64, LENGTH = 8 };

static const uint32_t k[ROUNDS] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
    0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74,
    0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3,
    0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354,
    0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3,
    0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa,
    0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t
rotated(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void
add_block(uint32_t h[WORDS], const unsigned char *p)
{
	uint32_t w[ROUNDS], s[WORDS];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		       (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < ROUNDS; i++)
		w[i] = w[i - 16] + w[i - 7] +
		       (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(s, h, sizeof(s));
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t a = s[0], e = s[4];
		uint32_t t1 = s[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
			      ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
		uint32_t t2 = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
			      ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, (WORDS - 1) * sizeof(*s));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < WORDS; i++)
		h[i] += s[i];
}

void
sha256(const void *bytes, size_t n, unsigned char sum[SHA256_SIZE])
{
	uint32_t h[WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
	    0x1f83d9ab, 0x5be0cd19};
	const unsigned char *p = bytes;
	unsigned char last[2 * BLOCK] = {0};
	size_t rest = n % BLOCK, end = rest + 1 + LENGTH > BLOCK ? 2 * BLOCK : BLOCK;

	for (size_t at = 0; at + BLOCK <= n; at += BLOCK)
		add_block(h, p + at);
	if (rest)
		memcpy(last, p + n - rest, rest);
	last[rest] = 0x80;
	for (size_t i = 0; i < LENGTH; i++)
		last[end - 1 - i] = (unsigned char)((uint64_t)n * 8 >> (8 * i));
	for (size_t at = 0; at < end; at += BLOCK)
		add_block(h, last + at);
	for (size_t i = 0; i < SHA256_SIZE; i++)
		sum[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* Hashes the key, each byte XORed with pad, followed by n bytes. */
static void
padded(const unsigned char key[BLOCK], unsigned char pad, const void *bytes, size_t n,
    unsigned char sum[SHA256_SIZE])
{
	unsigned char *all = xmalloc(BLOCK + n);

	for (size_t i = 0; i < BLOCK; i++)
		all[i] = key[i] ^ pad;
	if (n)
		memcpy(all + BLOCK, bytes, n);
	sha256(all, BLOCK + n, sum);
	free(all);
}

void
sha256_hmac(
    const void *key, size_t key_n, const void *bytes, size_t n, unsigned char mac[SHA256_SIZE])
{
	enum { INNER = 0x36, OUTER = 0x5c };

	unsigned char block[BLOCK] = {0}, inner[SHA256_SIZE];

	assert(key_n <= BLOCK);
	memcpy(block, key, key_n);
	padded(block, INNER, bytes, n, inner);
	padded(block, OUTER, inner, sizeof(inner), mac);
}
