/*
 * Rank output on the far side: the agent writes it to spools in the session's directory, and from
 * there it is sent as the link has room. A slow link therefore does not slow down any rank.
 */
#ifndef FOLLOW_H
#define FOLLOW_H
#include "relay/packet.h"

struct follows;

/* Returns NULL with *e set on failure: each user may have only so many inotify instances. */
struct follows *follows_new(struct loop *loop, struct link *l, struct err *e);
void follows_free(struct follows *fs); /* NULL-safe; leaves the files */
/* Follows the spools of the rank that spawn (a Tspawn) is about to start, which begin empty. Makes
 * dir if necessary. */
int follow_open(
    struct follows *fs, const struct msg *spawn, const char *dir, const char *name, struct err *e);
/* Examines a message from the agent. If it counts what the rank has printed, that output is sent at
 * once. If it reports the rank's end (Nexit, or Rerror to Tspawn), the files are removed once all
 * of their contents have been sent. */
void follow_told(struct follows *fs, const struct msg *m);
/* Examines a message to the agent. If it asks a rank to quit (Nquit, or an Nmany of them), output
 * that is not sent within a second of the rank's exit is dropped. */
void follow_quit(struct follows *fs, const struct msg *m);
/* Sends one piece. Returns false if there is nothing to send. */
bool follows_more(struct follows *fs);

#endif
