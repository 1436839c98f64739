/*
 * The standard error of another process, whatever it is, to say a line on. It is found while that
 * process waits for us in a request. A thread writes to it, since it may block or be anything: a
 * full pipe, a stopped terminal, a file of a server that does not answer.
 */
#ifndef STDERR_OF_H
#define STDERR_OF_H
#include "util.h"
#include <sys/types.h>

struct stderr_of;

/* The standard error of a thread that waits for us in an open(2) or write(2). NULL if it has none
 * that can be written to, or if we may not know: the process of another user, another PID
 * namespace. Does not call into the file system of that file, and does not keep a pipe open. */
struct stderr_of *stderr_of_thread(pid_t tid);
struct stderr_of *stderr_of_ref(struct stderr_of *s);
void stderr_of_unref(struct stderr_of *s); /* NULL-safe */

/* Who is to be told what, and who is given the errno of it. */
struct stderr_line {
	struct stderr_of *to; /* NULL: that of the closer */
	/* The process whose close(2) fails with the errno. If its program reports that by itself,
	 * nothing is written. 0: nobody is given the errno. */
	pid_t closer;
	const char *text; /* ends with a newline; at most PIPE_BUF bytes are written */
	/* Called on the loop's thread when the line has been written, or has not been for so long
	 * that nobody should wait for it. May be NULL. */
	void (*done)(void *arg);
	void *arg;
};

/* Writes a line. Returns false if nobody can be told: done() is then not called. */
bool stderr_of_write(const struct stderr_line *line);
/* Calls what is left to be called. Lines that cannot be written are lost. */
void stderr_of_stop(void);

#endif
