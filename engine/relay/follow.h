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
/* A message of the agent. It may count what the rank has printed, which is sent then; or say that
 * it has ended (Nexit, or Rerror to Tspawn): the files are removed when all of it is sent. */
void follow_told(struct follows *fs, const struct msg *m);
/* The rank was told to end (an Nquit, or an Nmany of them; others are passed over): when it has,
 * what could not be sent in a second is dropped. */
void follow_quit(struct follows *fs, const struct msg *m);
/* Sends a piece; false: there is nothing to send. */
bool follows_more(struct follows *fs);

#endif
