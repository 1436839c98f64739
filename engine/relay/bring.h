/*
 * The shell command that runs the far relay on the remote host, and the programs that it needs,
 * which are copied there: to the first place that holds them, in a directory that is named after
 * their hash and that nobody else can write to. The files are checked against the hash on each
 * connection.
 */
#ifndef BRING_H
#define BRING_H
#include "err.h"

#define BRING_GO "go\n" /* the reply to BANNER_WANT, sent before the files */

struct bring {
	const char *engine;  /* path of the program there; NULL: ours is copied */
	const char *keep;    /* the directory there for the copy, with a "/"; NULL: see bring.c */
	struct buf files[2]; /* ddip-engine, ddip_engine.so */
};

/* engine: "auto", or a path on the remote host: of the program, or with a "/" at its end of the
 * directory in which a copy is kept. Reads our own programs if they are to be copied. */
int bring_open(struct bring *b, const char *engine, struct err *e);
/* One line for any shell (sh, csh, fish) that runs `ddip-engine far OPTION VALUE`. The caller frees
 * it. Returns NULL with *e set if the line cannot be made. */
char *bring_text(const struct bring *b, const char *option, const char *value, struct err *e);
/* Can our programs run on such a machine (uname -sm)? Returns 0, or -errno with *e set. */
int bring_fits(const char *machine, struct err *e);

#endif
