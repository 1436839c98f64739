/* The order in which the output of a group's ranks arrived: the last pieces, not their bytes. */
#ifndef ARRIVALS_H
#define ARRIVALS_H
#include "group/group.h"

/* Bytes of one stream of a rank that arrived before any of another: up to `end` in its spool. */
struct arrival {
	uint64_t end, len;
	uint16_t rank;
	uint8_t stream; /* SPOOL_STDOUT or SPOOL_STDERR */
};

/* Notes that this stream of the rank has grown by len bytes, up to end. */
void arrivals_add(struct group *g, int rank, int stream, uint64_t len, uint64_t end);
/* A piece, counted from the newest, 0; NULL: older ones are not kept. */
const struct arrival *arrivals_at(const struct group *g, size_t back);
void arrivals_free(struct group *g);

#endif
