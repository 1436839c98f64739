/* The command that leads to a host: starts it, reads its first lines, passes its streams on. */
#ifndef LINE_LAUNCH_H
#define LINE_LAUNCH_H
#include "err.h"
#include "loop.h"

struct launch;

struct launch_ops {
	/* A line that the command printed, without its newline. May call launch_take(). */
	void (*line)(void *arg, const char *line);
	/* The command exited before its streams were taken, and the launch is freed. why gives its
	 * exit status and its last words. */
	void (*ended)(void *arg, const struct err *why);
};

/* Starts command with text as an additional argument, in a session of its own. Returns NULL with *e
 * set on failure. */
struct launch *launch_start(struct loop *loop, char **command, const char *text,
    const struct launch_ops *ops, void *arg, struct err *e);
/* Terminates the command and what it started on this host, and frees la. NULL-safe. */
void launch_end(struct launch *la);
/* Writes to its standard input; buffers what it does not read yet. */
void launch_write(struct launch *la, const void *p, size_t n);
/* Transfers its streams to the caller, with what was already read from them (valid while la
 * exists). No callbacks are made from here on. */
void launch_take(struct launch *la, int *rfd, int *wfd, struct slice *early);
/* A line that means nothing to the caller; it becomes part of the last words. */
void launch_noise(struct launch *la, const char *line);
/* The last words: the end of its standard error and, until its streams are taken, of its output. */
struct slice launch_words(struct launch *la);

#endif
