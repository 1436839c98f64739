/* Writes arbitrary bytes as JSON strings. */
#ifndef JSON_H
#define JSON_H
#include "util.h"

/* How many of these bytes end at a character's end: what follows may be half a UTF-8 character. */
size_t json_whole(const char *p, size_t n);
/* Appends "…" with escapes; bytes that are not UTF-8 become U+FFFD. */
void json_string(struct buf *b, const char *p, size_t n);

#endif
