/* Sets of ranks, and lists of them as users write them, such as 0,2-3. */
#ifndef RANK_SET_H
#define RANK_SET_H
#include "err.h"
#include "util.h"
#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANKS = 16384, RANK_SET_BITS = 64 };

struct rank_set {
	uint64_t word[MAX_RANKS / RANK_SET_BITS];
};

void rank_set_add(struct rank_set *s, int rank);
bool rank_set_has(const struct rank_set *s, int rank);
bool rank_set_empty(const struct rank_set *s);
int rank_set_count(const struct rank_set *s);
/* The smallest of its ranks that is at least from; -1: there is none. */
int rank_set_next(const struct rank_set *s, int from);
/* Stores the ranks that n lists name; all must be below size. Returns 0, or -EINVAL with *e set. */
int rank_set_parse(struct rank_set *s, char **list, int n, int size, struct err *e);
/* Appends it as a list. */
void rank_set_print(const struct rank_set *s, struct buf *out);
/* Appends "rank 3" or "ranks 0-2,5"; of many stretches only the first ones, and "…". Returns how
 * many ranks it has. */
int rank_set_name(const struct rank_set *s, struct buf *out);
/* Does a list name this rank? */
bool rank_list_has(const char *list, int rank);

#define RANK_SET_EACH(rank, set)                                                                   \
	for (int rank = rank_set_next((set), 0); rank >= 0; rank = rank_set_next((set), rank + 1))
#endif
