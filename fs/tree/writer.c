/*
 * Decides which close of a file is the last, and whether its writer was killed. The kernel sends a
 * FLUSH for each close of each copy of a descriptor, and does not say whether copies remain.
 */
#include "tree/writer.h"
#include "base/daemon.h"
#include "base/stderr_of.h"
#include "proc.h"
#include <errno.h>
#include <fcntl.h>

/* A process with more descriptors than this is not searched: that would take milliseconds. */
enum { LOOK_MAX = 256 };

enum answer { NO, YES, UNKNOWN };

/* waits: it is the process whose close we are asked about. */
static enum answer
still_writes(pid_t pid, const struct file *f, bool waits)
{
	int n = pid ? proc_writes(pid, f->node->ino, LOOK_MAX) : -ENOENT;

	/* Unless all of it waits for us, it may have moved its copy behind us, as a shell does that
	 * restores a redirection. It then closes the former one, and waits for us. */
	if (n == 0 && !(waits && proc_has_one_thread(pid)))
		n = proc_writes(pid, f->node->ino, LOOK_MAX);
	if (n == -ENOENT || n == -ESRCH)
		return NO; /* it has exited */
	return n < 0 ? UNKNOWN : n > 0 ? YES : NO;
}

/* This opener has another open file with the same inode number: the descriptors of the two cannot
 * be told apart. */
static bool
is_one_of_two(const struct file *f)
{
	return f->twins > 0;
}

/* Is this the last close, as far as can be determined? */
static bool
is_last(const struct file *f, pid_t pid)
{
	enum answer a;

	/* 0: a foreign PID namespace, whose processes cannot be told apart */
	if (pid == 0)
		return true;
	if (is_one_of_two(f))
		return pid == f->opener;
	a = still_writes(pid, f, true);
	if (a == NO && pid != f->opener)
		a = still_writes(f->opener, f, false);
	for (int i = 0; i < WRITERS_MAX && a == NO; i++)
		if (f->writers[i] && f->writers[i] != pid)
			a = still_writes(f->writers[i], f, false);
	return a == UNKNOWN ? pid == f->opener : a == NO;
}

static bool
wrote(const struct file *f, pid_t pid)
{
	bool did = pid == f->opener;

	for (int i = 0; i < WRITERS_MAX; i++)
		did |= f->writers[i] == pid;
	return did;
}

enum writer_close
writer_close(const struct file *f, const struct req *r)
{
	struct req_client c;

	if (r->closer != CLOSER_UNKNOWN)
		return r->closer == CLOSER_KILLED ? WRITER_KILLED : WRITER_CLOSES;
	c = req_client(r);
	if (c.killed && wrote(f, c.process))
		return WRITER_KILLED;
	if (!is_last(f, c.process))
		return WRITER_STAYS;
	return c.exits ? WRITER_EXITS : WRITER_CLOSES;
}

double
writer_mtime(const struct place *at)
{
	return daemon_.mounted;
}

/* Its standard error now, which is what a redirection makes it for one command of a shell. */
static void
find_stderr(struct file *f, pid_t tid)
{
	stderr_of_unref(f->err);
	f->err = stderr_of_thread(tid);
}

void
writer_note(struct file *f, pid_t tid)
{
	for (int i = 0; tid && i < WRITERS_MAX; i++) {
		if (f->writers[i] == tid)
			return;
		if (!f->writers[i]) {
			f->writers[i] = tid;
			find_stderr(f, tid);
			return;
		}
	}
}
