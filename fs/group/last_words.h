/* What a process wrote to stderr last, without what says nothing to its user. */
#ifndef LAST_WORDS_H
#define LAST_WORDS_H
#include "util.h"

/* The end of what explains why a process has ended, at most 600 bytes; of a crash the beginning,
 * with the user's frames first. crashed: it ended by a signal for which Python writes its stack.
 * The caller frees it. */
char *last_words(struct slice tail, bool crashed);
/* Appends the text without the frames of the engine, and without the names of extension modules, as
 * Python writes them when a signal kills it. */
void last_words_plain(struct slice text, struct buf *out);

#endif
