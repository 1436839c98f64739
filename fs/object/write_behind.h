/*
 * Write-behind: a large write to a memfd is made by a copy thread, out of the buffer in which a
 * front end received it, while the next request comes in. There is one at a time. On the loop.
 */
#ifndef WRITE_BEHIND_H
#define WRITE_BEHIND_H
#include "object/pages.h"
#include "util.h"

/* Will write n bytes at p to fd, or into the memory that it has already (NULL: none); call it
 * settled. *failed becomes the errno if that fails. False: p is in no buffer that has been lent, or
 * n is small, so nothing was done. */
bool write_behind(
    int fd, struct pages *pages, const char *p, size_t n, uint64_t offset, int *failed);
/* Returns when nothing is left to be written; call it before fd or *failed go. */
void write_behind_settle(void);

/* For a front end: bytes of this buffer stay as they are while write_behind_borrows() says so. */
void write_behind_lend(struct slice buffer);
bool write_behind_borrows(const char *buffer);

#endif
