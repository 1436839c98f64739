/* The command that leads to a host: started here, its first lines, and the streams that it leaves.
 */
#ifndef RELAY_LAUNCH_H
#define RELAY_LAUNCH_H
#include "err.h"
#include "loop.h"

struct launch;

struct launch_ops {
	/* A line that the command printed, without its newline; it may call launch_take(). */
	void (*line)(void *arg, const char *line);
	/* It has ended before its streams were taken, and is freed: why says how, with its last
	 * words. */
	void (*ended)(void *arg, const struct err *why);
};

/* Starts command with text as one more argument, in a session of its own. NULL: e says why not. */
struct launch *launch_start(struct loop *loop, char **command, const char *text,
    const struct launch_ops *ops, void *arg, struct err *e);
/* Ends it, with what it started here; frees it. NULL-safe. */
void launch_end(struct launch *la);
/* Writes to its standard input, as it takes it. */
void launch_write(struct launch *la, const void *p, size_t n);
/* Gives its streams to the caller, and what was read already (as long as la lives). From here on it
 * calls nobody. */
void launch_take(struct launch *la, int *rfd, int *wfd, struct slice *early);
/* A line that means nothing to the caller: it belongs to the last words. */
void launch_noise(struct launch *la, const char *line);
/* The last words: the end of what it wrote to its standard error and, as long as its streams are
 * not taken, of what it printed. */
struct slice launch_words(struct launch *la);

#endif
