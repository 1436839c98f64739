/* Directories of the daemon, which are elsewhere here: what its messages name is put in our place.
 */
#ifndef PLACES_H
#define PLACES_H
#include "relay/follow.h"

struct places;

/* All of them lie in dir. */
struct places *places_new(const char *dir);
void places_free(struct places *ps); /* NULL-safe */
/* Tspawn or Tinit as it is to be said to the agent here, appended to out; a rank's output will be
 * followed. */
int places_translate(
    struct places *ps, struct follows *fs, const struct msg *m, struct buf *out, struct err *e);

#endif
