/*
 * Launchers: programs that run a command on another host and carry its standard input and output.
 * `launchers` has a row for each one that needs options from us; any other command can be used as
 * well.
 */
#ifndef LAUNCHER_H
#define LAUNCHER_H
#include "err.h"

/* Runs the agents on this machine, one per host name: for trying out placements. */
#define LAUNCHER_HERE "here"

/* Checks the words of `launcher`: a command, or a row's name and the user's options. Returns 0 or
 * -EINVAL. */
int launcher_check(const char *words, struct err *e);
/* The command for a host, to which the caller appends the shell text to run. words must have passed
 * launcher_check(). Returns a list ended by NULL, which launcher_free() frees. */
char **launcher_argv(const char *words, const char *host);
/* For a launcher too slow for bulk data, which then goes over a direct connection from the other
 * host: the name of the variable that holds this host's address there. NULL: the launcher carries
 * everything. */
const char *launcher_direct(const char *words);
void launcher_free(char **argv);

#endif
