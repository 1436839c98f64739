/*
 * Launchers: what runs a command on another host, with its standard input and output. `launchers`
 * has a row for each that needs options of ours; any other command can be one.
 */
#ifndef LAUNCHER_H
#define LAUNCHER_H
#include "err.h"

/* The agents run on this machine, one for each name: for trying out placements. */
#define LAUNCHER_HERE "here"

/* The words of `launcher`: a command, or a row's name and the user's options. 0 or -EINVAL. */
int launcher_check(const char *words, struct err *e);
/* The command for a host (words that were good before), to which a shell text is appended: a list
 * that ends with NULL, for launcher_free. */
char **launcher_argv(const char *words, const char *host);
/* Where the command carries so little that bulk goes by a connection from there: the variable that
 * has this host's address there. NULL: it carries everything. */
const char *launcher_direct(const char *words);
void launcher_free(char **argv);
/* Their names and what they run, for messages and manual pages. */
void launcher_print(struct buf *out);

#endif
