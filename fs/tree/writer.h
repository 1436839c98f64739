/*
 * Decides which close of a file is the last. The last close submits what was written, unless a
 * killed writer caused it.
 */
#ifndef WRITER_H
#define WRITER_H
#include "tree/tree.h"

/* What a FLUSH request means for the data written so far. */
enum writer_close {
	WRITER_STAYS,  /* others still have the file open: more data may follow */
	WRITER_CLOSES, /* the last close: the data is submitted, and the closer waits for that */
	/* the same by an exiting process, which cannot be interrupted: it does not wait */
	WRITER_EXITS,
	/* a signal killed the writer: the data is incomplete, and is not submitted */
	WRITER_KILLED
};

/* Classifies a FLUSH as well as can be determined. Children inherit descriptors and shells hold
 * copies, so those that the opener, the writers and the caller still have are looked for. */
enum writer_close writer_close(const struct file *f, const struct req *r);
/* The mtime of a file that never changes: an editor warns if the time differs from when it read the
 * file. */
double writer_mtime(const struct place *at);
/* This thread is writing to the file. */
void writer_note(struct file *f, pid_t tid);

#endif
