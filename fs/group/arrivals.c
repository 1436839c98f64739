/* A ring of the pieces of output in the order of their arrival. */
#include "group/arrivals.h"
#include <stdlib.h>

enum { KEPT = 4096 }; /* pieces: as many lines, where ranks print in turn */

struct arrivals {
	size_t n; /* pieces so far; the newest is at (n - 1) % KEPT */
	struct arrival ring[KEPT];
};

void
arrivals_add(struct group *g, int rank, int stream, uint64_t len, uint64_t end)
{
	struct arrivals *a = g->journal.arrivals;
	struct arrival *newest;

	if (!a)
		a = g->journal.arrivals = xcalloc(1, sizeof(*a));
	newest = a->n ? &a->ring[(a->n - 1) % KEPT] : NULL;
	if (newest && newest->rank == rank && newest->stream == stream) {
		newest->len += len;
		newest->end = end;
		return;
	}
	a->ring[a->n++ % KEPT] = (struct arrival){
	    .end = end, .len = len, .rank = (uint16_t)rank, .stream = (uint8_t)stream};
}

const struct arrival *
arrivals_at(const struct group *g, size_t back)
{
	const struct arrivals *a = g->journal.arrivals;

	return a && back < MIN(a->n, (size_t)KEPT) ? &a->ring[(a->n - 1 - back) % KEPT] : NULL;
}

void
arrivals_free(struct group *g)
{
	free(g->journal.arrivals);
	g->journal.arrivals = NULL;
}
