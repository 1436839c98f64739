/* Texts that come from others, made fit to be shown. */
#ifndef PLAIN_H
#define PLAIN_H
#include "util.h"

/* Appends a text without terminal control: without escape sequences, and without unprintable bytes
 * other than newlines and tabs. */
void plain_add(struct buf *out, struct slice s);
/* Appends a text as UTF-8 without terminal control, in at most max bytes. What is longer ends in
 * "…". Bytes that are no UTF-8 become U+FFFD. one_line: newlines and tabs become blanks. */
void plain_clip(struct buf *out, struct slice s, size_t max, bool one_line);
/* Appends a path as plain_clip() would, but cut at its begin: its end tells more. max: without the
 * "…". */
void plain_clip_path(struct buf *out, struct slice s, size_t max);

#endif
