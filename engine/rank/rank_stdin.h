/* The bytes that are fed to input() and pdb of this rank. */
#ifndef RANK_STDIN_H
#define RANK_STDIN_H
#include "util.h"

void rank_stdin_put(struct slice data); /* empty: the end of input, once */
void rank_stdin_end(void);		/* for good */
/* Moves what is there to *to. 1: something; 0: the end; -EINTR: a signal came. Blocks: without the
 * GIL. */
int rank_stdin_take(struct buf *to);
bool rank_stdin_ready(void); /* take would not block */
/* Forgets what nobody has taken, ends as well: how many bytes. */
size_t rank_stdin_drop(void);
void rank_stdin_lock(void);
void rank_stdin_unlock(void);

#endif
