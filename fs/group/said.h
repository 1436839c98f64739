/* What ranks say of themselves: lines `key value`, as engine/ddip_engine/cells/digest.py makes
 * them. */
#ifndef SAID_H
#define SAID_H
#include "util.h"

/* The value of the next line with this key, from *p on; its p is NULL if there is none. */
struct slice said_next(const char **p, const char *key);

/* The lines `local NAME<tab>VALUE` of several ranks. */
struct said_locals {
	struct buf ranks; /* those that have any, such as 0,2-5 */
	struct buf
	    common;	/* NAME=VALUE of what is alike on all of them; what is not finite first */
	struct buf odd; /* the latter, while it is collected */

	struct said_differing {
		struct buf name, text; /* text: `0.53 on 0, nan on 1-3` */
		bool odd;	       /* one of the values is not finite */
	} * differing;		       /* the odd ones first */

	int n;
};

/* said: the lines of each rank; rank: their numbers. said_free() frees the result. */
struct said_locals said_compare(const char *const *said, const int *rank, int n);
void said_free(struct said_locals *l);

#endif
