/* The words of a line of `ctl`: splitting, printing, and numbers. */
#ifndef WORDS_H
#define WORDS_H
#include "err.h"
#include "util.h"

enum { WORDS_MAX = 4096 };

/* Splits a line into words: blanks separate, '…' quotes ('' inside is one '), # begins a comment.
 * The words lie in line, which is changed. How many, or -EINVAL. */
int words_split(char *line, char **words, int max, struct err *e);
/* A word as words_split reads it back. */
void words_print(const char *word, struct buf *out);
/* The whole number that word is, min..max; name says whose argument it is. -EINVAL. */
int words_number(
    const char *name, const char *word, long long min, long long max, long long *v, struct err *e);

#endif
