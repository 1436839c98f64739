/* An open directory, for all front ends: the i-th entry stays the same however often it is read. */
#ifndef LISTING_H
#define LISTING_H
#include "tree/tree.h"

struct listing;

/* Maximum number of entries in a reply: some requests ask for a mebibyte of them, which would hold
 * up the others. */
enum { LISTING_MAX = 4096 };

struct listing *listing_new(struct node *dir);
/* Finds out what only a rank knows of the directory. Returns 0, -errno or PARKED; until r is
 * answered, l must be kept. */
int listing_open(struct listing *l, struct req *r);
void listing_free(struct listing *l);
/* Starts over: shows what the directory contains from now on, but of what only a rank knows what it
 * knew at listing_open(). */
void listing_rewind(struct listing *l);
/* The i-th entry, counted from 0 (without . and ..). Its name is valid until the next call. NULL if
 * there are fewer entries. */
const char *listing_entry(struct listing *l, size_t i, uint64_t *ino, mode_t *type);
/* Frees all listings, when nothing can hold them any more. */
void listing_fini(void);

#endif
