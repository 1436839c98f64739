/* Lists of ranks as users write them, such as 0,2-3. */
#ifndef RANK_LIST_H
#define RANK_LIST_H
#include "group/group.h"

/* The numbers that s names, ascending and each once, into ranks (MAX_RANKS); all below size. How
 * many, or -EINVAL; e may be NULL. */
int rank_list(const char *s, int size, int *ranks, struct err *e);
/* The same of n words, each a list. */
int rank_list_words(char **word, int n, int size, int *ranks, struct err *e);

#endif
