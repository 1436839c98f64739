/* Keeps when the last steps ended, and finds medians. */
#include "rank/profile.h"
#include <stdlib.h>
#include <string.h>

enum { ENOUGH = 8 }; /* periods: their median tells something */

void
profile_reset(struct profile *p)
{
	p->count = 0;
	p->waited = p->longest = 0;
	p->in = NULL;
}

void
profile_wait(struct profile *p, const char *in, uint64_t ns)
{
	p->waited += ns;
	if (ns > p->longest) {
		p->longest = ns;
		p->in = in;
	}
}

void
profile_step(struct profile *p, uint64_t now, uint64_t cpu)
{
	uint32_t n = p->count, i = n % PROFILE_KEPT;

	p->step[i].at = now;
	p->step[i].waited = p->waited;
	p->step[i].cpu = cpu;
	p->step[i].in = p->in;
	p->count = n + 1;
	p->longest = 0;
	p->in = NULL;
}

static int
compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double
median(uint64_t *list, unsigned n)
{
	unsigned low = (n - 1) / 2, high = n / 2;

	qsort(list, n, sizeof(*list), compare);
	return ((double)list[low] + (double)list[high]) / 2;
}

static const char *
most_frequent(const struct profile *p, uint32_t from, uint32_t to)
{
	const char *best = NULL;
	unsigned most = 0;

	for (uint32_t i = from; i < to; i++) {
		const char *in = p->step[i % PROFILE_KEPT].in;
		unsigned n = 0;

		for (uint32_t k = from; in && k < to; k++)
			n += p->step[k % PROFILE_KEPT].in == in;
		if (n > most) {
			most = n;
			best = in;
		}
	}
	return best;
}

struct profile_found
profile_read(const struct profile *p, unsigned together)
{
	uint64_t step[PROFILE_READ], waited[PROFILE_READ], cpu[PROFILE_READ];
	uint32_t end = p->count;
	unsigned n = MIN(end ? end - 1 : 0, (uint32_t)PROFILE_READ) / together;
	struct profile_found found = {0};

	if (n < ENOUGH)
		return found;
	for (unsigned i = 0; i < n; i++) {
		uint32_t to = (end - 1 - i * together) % PROFILE_KEPT;
		uint32_t from = (end - 1 - (i + 1) * together) % PROFILE_KEPT;

		step[i] = p->step[to].at - p->step[from].at;
		waited[i] = p->step[to].waited - p->step[from].waited;
		cpu[i] = p->step[to].cpu - p->step[from].cpu;
	}
	found.steps = n * together;
	found.step = median(step, n) / together;
	found.waited = median(waited, n) / together;
	found.cpu = median(cpu, n) / together;
	found.in = most_frequent(p, end - found.steps, end);
	return found;
}
