/*
 * The text that a shell over there runs, which runs the far relay; and the programs that it needs,
 * which are brought along: to a directory of the user's cache that is named by their hash, that
 * nobody else can write to, and whose files are compared with it each time.
 */
#ifndef BRING_H
#define BRING_H
#include "err.h"

#define BRING_GO "go\n" /* the answer to BANNER_WANT, before the files */

struct bring {
	const char *engine;  /* the program over there; NULL: ours is brought */
	struct buf files[2]; /* ddip-engine, ddip_engine.so */
};

/* engine: "auto", or a path over there. Reads our own programs if they are to be brought. */
int bring_open(struct bring *b, const char *engine, struct err *e);
void bring_close(struct bring *b);
/* One line that a shell (sh, csh, fish) runs: it runs `ddip-engine far OPTION VALUE`. Owned by the
 * caller; NULL: e says why that can't be. */
char *bring_text(const struct bring *b, const char *option, const char *value, struct err *e);
/* May our programs run on such a machine (uname -sm)? */
int bring_fits(const char *machine, struct err *e);

#endif
