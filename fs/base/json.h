/* Writes arbitrary bytes as JSON strings. */
#ifndef JSON_H
#define JSON_H
#include "util.h"

/* Length of the longest prefix that ends at a character boundary: the bytes after it may be an
 * incomplete UTF-8 character. */
size_t json_whole(const char *p, size_t n);
/* Length of the valid UTF-8 character at s, of n bytes; 0 if there is none (RFC 3629: no
 * surrogates, no overlong forms). */
size_t json_character(const char *s, size_t n);
/* Appends n bytes as a quoted and escaped string. A byte that is not valid UTF-8 becomes U+FFFD. */
void json_string(struct buf *b, const char *p, size_t n);

#endif
