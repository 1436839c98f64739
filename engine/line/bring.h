/*
 * The shell command that runs the far relay on the remote host (bring.sh), and the programs that it
 * needs, which are copied there: to the first place that holds them, in a directory that is named
 * after their sums and that nobody else can write to. The files are checked against the sums on
 * each connection.
 */
#ifndef BRING_H
#define BRING_H
#include "err.h"

#define BRING_GO "go\n" /* the reply to BANNER_WANT, sent before the files */

enum { BRING_SUM = 64 }; /* digits of a sum of sha256sum */

struct bring {
	const char *engine;	     /* as given to bring_open() */
	struct buf files[2];	     /* ddip-engine, ddip_engine.so; empty: they are not copied */
	char sums[2][BRING_SUM + 1]; /* of these */
};

extern const char bring_script[]; /* bring.sh, in one line */

/* engine: "auto", or a path on the remote host: of the program, or with a "/" at its end of the
 * directory in which a copy is kept. Reads our own programs if they are to be copied. */
int bring_open(struct bring *b, const char *engine, struct err *e);
/* One line for any shell (sh, csh, fish) that runs `ddip-engine far OPTION VALUE`. The caller frees
 * it. Returns NULL with *e set if the line cannot be made. */
char *bring_text(const struct bring *b, const char *option, const char *value, struct err *e);
/* Can our programs run on such a machine (uname -sm)? Returns 0, or -errno with *e set. */
int bring_fits(const char *machine, struct err *e);

#endif
