/* The bytes that input() and pdb of this rank read. */
#ifndef RANK_STDIN_H
#define RANK_STDIN_H
#include "util.h"

void rank_stdin_put(struct slice data); /* empty: one end of input */
void rank_stdin_end(void);		/* end of input from now on */
/* Moves the buffered bytes to *to. Returns 1, 0 at the end of input, or -EINTR if a signal arrived.
 * Blocks: call it without the GIL. */
int rank_stdin_take(struct buf *to);
bool rank_stdin_ready(void); /* rank_stdin_take() would not block */
/* Discards bytes and ends of input that have not been read. Returns the number of bytes. */
size_t rank_stdin_drop(void);
void rank_stdin_lock(void);
void rank_stdin_unlock(void);

#endif
