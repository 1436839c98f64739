/*
 * Decides which close of a file is the last: that one submits what was written, unless a killed
 * writer made it.
 */
#ifndef WRITER_H
#define WRITER_H
#include "tree/tree.h"

/* What the flush of a request means for what was written. */
enum writer_close {
	WRITER_STAYS,  /* others have the file open still: more may come */
	WRITER_CLOSES, /* the last close: it is submitted, and who closes waits for that */
	WRITER_EXITS,  /* the same by a process that ends and can't be interrupted: it does not wait
			*/
	WRITER_KILLED  /* a signal ended who wrote: what is there is a part, and submitted by nobody
			*/
};

/* Judges it as far as can be seen. Children inherit descriptors and shells hold copies: those that
 * the opener, who wrote, or the caller itself still have are looked for. */
enum writer_close writer_close(const struct file *f, const struct req *r);
/* The time of a file that always is as it was: an editor that finds another one than when it read
 * it warns. */
double writer_mtime(const struct place *at);
/* This thread has written into it. */
void writer_note(struct file *f, pid_t tid);

/* For an opener that is a shell, which hides errors of close(2): its terminal, as a descriptor that
 * is good for writer_tell alone; -1: it has none, or its standard error goes elsewhere. */
int writer_terminal(const struct file *f);
/* Shows a line there. Never waits. */
void writer_tell(int terminal, const char *text);

#endif
