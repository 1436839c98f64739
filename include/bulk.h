/*
 * Frames that wait for room in a socket: what is large, on its way to another host. They are made
 * when there is room, so that little of it waits here.
 */
#ifndef BULK_H
#define BULK_H
#include "conn.h"

enum { BULK_PIECE = 120 << 10 }; /* a usual number of bytes in a frame */

struct bulk;

/* Adds what is sent next, whole frames, to frame (but see bulk_add_rest()). Returns false if there
 * is nothing. */
typedef bool bulk_fn(void *arg, struct buf *frame);

/* fd: a socket, which is this module's from now on. control: frames are sent when it has sent all
 * that came before them (NULL: none). most: the largest bulk_piece(), and the first one: it becomes
 * smaller while the socket is emptied slowly, and doubles again. 0: no frame is too large. */
struct bulk *bulk_new(
    struct loop *l, int fd, struct conn *control, size_t most, bulk_fn *next, void *arg);
void bulk_free(struct bulk *b);	 /* NULL-safe; not inside next() */
void bulk_ready(struct bulk *b); /* next() has a frame */
/* Inside next(): what it adds goes on with n bytes of a file, which stays open until it is called
 * again. */
void bulk_add_rest(struct bulk *b, int fd, uint64_t offset, size_t n);
/* The number of bytes that the next frame should have. */
size_t bulk_piece(const struct bulk *b);

#endif
