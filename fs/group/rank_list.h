/* Lists of ranks as users write them, such as 0,2-3. */
#ifndef RANK_LIST_H
#define RANK_LIST_H
#include "group/group.h"

/* Stores the numbers that s names in ranks (room for MAX_RANKS), ascending and without duplicates;
 * all must be below size. Returns their count, or -EINVAL with *e set. */
int rank_list(const char *s, int size, int *ranks, struct err *e);
/* The same for n words, each of which is a list. */
int rank_list_words(char **word, int n, int size, int *ranks, struct err *e);
/* Is the rank in this list? */
bool rank_list_has(const char *s, int rank);

#endif
