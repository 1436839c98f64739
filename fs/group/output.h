/* Follows the spools that hold what ranks print, and limits how much of them is kept. */
#ifndef OUTPUT_H
#define OUTPUT_H
#include "group/group.h"

/* Start and stop watching the spools of a group (inotify). */
void output_follow(struct group *g);
void output_gone(struct group *g);
/* The number of ranks a group has, or had when it was larger: their output is kept. */
int output_known(const struct group *g);
/* One of these ranks, for its output only; NULL if there was none with this number. */
struct rank *output_rank(struct group *g, int number);
/* Opens the spool of a rank that is about to print, unless it is open. Failures go to `error`. */
void output_open(struct rank *k);
/* A rank's spool, opened if it is closed. Of all former ranks, the one asked for last stays open.
 */
const struct spool_reader *output_spool(struct rank *k);
/* Closes the spool of a rank that is gone. It is opened again when somebody reads it. */
void output_close(struct rank *k);
/* The rank's process is about to start: what one on another host prints comes by output_take(),
 * until output_end(). Returns 0, or -errno with *e set. */
int output_begin(struct rank *k, struct err *e);
void output_end(struct rank *k);
/* Returns how many of the bytes are lost: *e says why, or else there is no room on this disk. */
size_t output_take(struct rank *k, int stream, struct slice bytes, struct err *e);
/* at: as the agent says, in the files that it writes. Sets it to the same place in those here. */
void output_place(struct rank *k, struct spool_mark *at);
/* Reads a rank's index to its end (k->output.tail) and reports each stream that grew. */
void output_advance(struct rank *k);
/* The position behind all that the rank has printed up to now. */
struct spool_mark output_now(struct rank *k);
/* Applies the setting `spool`: drops output beyond the limit. */
void output_trim(struct group *g);
/* The number of bytes of a stream (SPOOL_STDOUT, SPOOL_STDERR, SPOOL_DISPLAY) that are kept. */
uint64_t output_size(const struct rank *k, int stream);
/* Appends the last lines of what a stream has from one offset to another, at most max bytes.
 * Returns false if something was left out before them. A line that is longer is left out at its
 * beginning. */
bool output_last(
    struct rank *k, int stream, uint64_t from, uint64_t to, size_t max, struct buf *out);
/* Drops everything before this offset of the spool. Offsets do not move. */
void output_drop(struct rank *k, int stream, uint64_t base);

#endif
