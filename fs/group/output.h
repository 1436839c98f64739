/* Follows the spools of what ranks print, and decides how much of them is kept. */
#ifndef OUTPUT_H
#define OUTPUT_H
#include "group/group.h"

/* Watches the spools of a group (inotify) from now on, no more. */
void output_follow(struct group *g);
void output_gone(struct group *g);
/* How many ranks a group has, and had when it was larger: their output stays. */
int output_known(const struct group *g);
/* Opens the spool of a rank that begins to print, if it is not open; `error` has what fails. */
void output_open(struct rank *k);
/* Walks a rank's index to its end (k->output.tail); tells what grew. */
void output_advance(struct rank *k);
/* Applies `spool`: drops what is too much. */
void output_trim(struct group *g);
/* The bytes of a stream (SPOOL_STDOUT, SPOOL_STDERR) that are kept. */
uint64_t output_size(const struct rank *k, int stream);
/* Drops what is before this offset of the spool; offsets do not move. */
void output_drop(struct rank *k, int stream, uint64_t base);

#endif
