/* What all front ends say of their requests: errno to the client, `error`, `trace`. */
#ifndef FRONT_H
#define FRONT_H
#include "tree/tree.h"

/* The errno that a client's kernel may get for no: no itself, or EIO, said in the log. ENOSYS would
 * make the kernel never ask for that operation again, and a number that it uses itself (512 and
 * more) is refused as an answer, so that the client would wait for ever. 0 is success. */
int front_errno(int no);
/* Adds a failure that has a text to the group's `error`. name: the child of n that is meant, or
 * NULL. */
void front_journal(const struct node *n, const char *name, const struct err *e);
/* The same for a request that is answered with this result, if it is a failure. */
void front_failed(const struct req *r, int result);
/* Writes a line to `trace`: the name of the front end, the operation, n or its child `name` (NULL:
 * n itself), and more. Operations on `trace` itself are not traced. */
void front_trace(
    const char *front, const char *op, const struct node *n, const char *name, const char *more);

#endif
