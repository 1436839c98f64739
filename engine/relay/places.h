/* Maps the daemon's directories, in messages that name them, to directories of this host. */
#ifndef PLACES_H
#define PLACES_H
#include "relay/follow.h"

struct places;

/* All of this host's directories are created in dir. */
struct places *places_new(const char *dir);
/* Appends m, a Tspawn or Tinit, to out as this host's agent needs it. If it starts a rank, the
 * rank's output is followed. */
int places_translate(
    struct places *ps, struct follows *fs, const struct msg *m, struct buf *out, struct err *e);

#endif
