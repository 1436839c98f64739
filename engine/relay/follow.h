/*
 * What ranks print, on the far side: the agent writes it to spools in the session's directory, and
 * from there it is sent as there is room. So a slow link slows no rank.
 */
#ifndef FOLLOW_H
#define FOLLOW_H
#include "relay/packet.h"

struct follows;

struct follows *follows_new(struct loop *loop, struct link *l);
void follows_free(struct follows *fs); /* NULL-safe; the files stay */
/* The new rank that spawn asks for prints to these spools, in a directory of its own. */
int follow_open(
    struct follows *fs, const struct msg *spawn, const char *dir, const char *name, struct err *e);
/* m (Nexit, or Rerror to Tspawn) says that it has ended: the files are removed when all of it is
 * sent. Others are passed over. */
void follow_ended(struct follows *fs, const struct msg *m);
/* The rank was told to end (an Nquit, or an Nmany of them; others are passed over): when it has,
 * what could not be sent in a second is dropped. */
void follow_quit(struct follows *fs, const struct msg *m);
/* Sends a piece; false: there is nothing to send. */
bool follows_more(struct follows *fs);

#endif
