/* Frames made of an input: what the fuzzers of the two ends of a connection have in common. */
#ifndef FRAMES_H
#define FRAMES_H
#include "wire.h"
#include <stdint.h>

/* The input. What comes after its end is random, and its last bytes are the seed. */
static struct slice input;

static uint8_t
take(void)
{
	static uint64_t seed;

	if (input.n) {
		input.n--;
		seed = seed << 8 | (uint8_t)*input.p;
		return (uint8_t)*input.p++;
	}
	seed = seed * 6364136223846793005 + 1442695040888963407; /* Knuth, MMIX */
	return (uint8_t)(seed >> 56);
}

/* Adds fields of any values, by the format of the message. */
static void
fill(struct buf *b, int type)
{
	static const uint64_t far[] = {
	    0, 1, UINT64_MAX, 1u << 31, (uint64_t)1 << 63, 4096, 512, 64};

	for (const char *f = wire_format(type); *f; f++) {
		uint8_t c = take(); /* a short length, or a number */

		if (*f == 's' || *f == 'd') {
			char text[256];

			for (int i = 0; i < c; i++)
				text[i] = (char)take();
			wire_put_bytes(b, (struct slice){text, c});
		} else {
			wire_put_number(b, *f, c < 128 ? c : far[c % ARRAY_LEN(far)]);
		}
	}
}

/* Damages a body, as the low bits of `how` say. */
static void
damage(struct buf *b, uint8_t how)
{
	for (int i = how & 7; i == 3 && b->n; i = take() & 3)
		b->p[take() % b->n] = (char)take();
	if ((how & 15) == 5) {
		size_t less = 1 + (size_t)take();

		b->n -= MIN(b->n, less);
	}
}

#endif
