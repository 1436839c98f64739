/*
 * What is reported about a group: the lines of `events`, the entries of `error`, changes of
 * `status`.
 */
#ifndef JOURNAL_H
#define JOURNAL_H
#include "group/group.h"

/* Opens the stream of events in the group's run directory. 0 or -errno. */
int journal_open(struct group *g, struct err *e);
/* Readers of the events get ENODEV. */
void journal_close(struct group *g);
/* Forgets all failures. */
void journal_clear(struct group *g);

/* A failure that a user made or meets: into `error` (and the log). what: the line or the file. The
 * same one again is counted, not added. */
void journal_fail(struct group *g, const struct err *e, const char *what);
/* A line into `events`; a newline in it becomes a blank. */
void journal_event(struct group *g, const char *fmt, ...) PRINTF(2, 3);
/* Something that `status` shows has changed: wakes who watches. */
void journal_changed(struct group *g);

#endif
