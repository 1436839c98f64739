/* The words of a line of `ctl`: splitting, printing, and numbers. */
#ifndef WORDS_H
#define WORDS_H
#include "err.h"
#include "util.h"

enum { WORDS_MAX = 4096 };

/* Splits a line into words: blanks separate, '…' quotes ('' inside is one '), # begins a comment.
 * The words point into line, which is modified. Returns their number, or -EINVAL. */
int words_split(char *line, char **words, int max, struct err *e);
/* Appends a word, quoted if words_split needs that to read it back. */
void words_print(const char *word, struct buf *out);
/* Parses word as a whole number min..max into *v; name says whose argument it is. Returns 0 or
 * -EINVAL. */
int words_number(
    const char *name, const char *word, long long min, long long max, long long *v, struct err *e);

#endif
