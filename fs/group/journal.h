/*
 * What is reported about a group: the lines of `events`, the entries in `error`, and changes of
 * `status`.
 */
#ifndef JOURNAL_H
#define JOURNAL_H
#include "group/group.h"
#include "wire.h"

/* Opens the stream of events in the group's run directory. Returns 0 or -errno. */
int journal_open(struct group *g, struct err *e);
/* Readers of the events get ENODEV. */
void journal_close(struct group *g);
/* Drops all failures. */
void journal_clear(struct group *g);

/* Records a failure that a user caused or should see in `error` (and in the log). what: the line or
 * the file concerned. A repeated failure is counted rather than added. */
void journal_fail(struct group *g, const struct err *e, const char *what);
/* The same, of one rank. */
void journal_fail_rank(struct group *g, int rank, const struct err *e, const char *what);
/* Takes the latest failure back if it is this one: what was looked for is made now. */
void journal_retract(struct group *g, int no, const char *what);
/* Appends names that were not kept, of lines `NAME: reason`: "gen: a generator …; f: an open file
 * and 2 more". Returns their number. */
int journal_add_lost(struct slice lines, struct buf *out);
/* The text of the latest failure if it has this errno, else NULL. */
const char *journal_last(const struct group *g, int no);
/* Adds a line to `events`. Newlines in it become blanks. */
void journal_event(struct group *g, const char *fmt, ...) PRINTF(2, 3);
/* Adds the event of an Nstranger, from this process of the group. */
void journal_stranger(struct group *g, const char *process, const struct msg *m);
/* Something that `status` shows has changed: wakes its watchers. */
void journal_changed(struct group *g);

#endif
