/* An open directory, whichever front end reads it: the i-th entry is the same however often it is
 * asked for. */
#ifndef LISTING_H
#define LISTING_H
#include "tree/tree.h"

struct listing;

/* Entries of one reply: some requests ask for a mebibyte of them, which would keep up the others.
 */
enum { LISTING_MAX = 4096 };

struct listing *listing_new(struct node *dir);
void listing_free(struct listing *l);
/* From now on it shows what is there then. */
void listing_rewind(struct listing *l);
/* The i-th entry, counted from 0 (without . and ..): its name lives until the next call. NULL:
 * there are not so many. */
const char *listing_entry(struct listing *l, size_t i, uint64_t *ino, mode_t *type);
/* Frees all of them: who held them is gone. */
void listing_fini(void);

#endif
