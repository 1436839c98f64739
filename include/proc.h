/* What /proc says about a process or thread, and about the mounts that this process sees. */
#ifndef PROC_H
#define PROC_H
#include "util.h"
#include <sys/types.h>

/* The bit of a signal in the sets below. */
#define PROC_SIGNAL(signo) (UINT64_C(1) << ((signo)-1))

enum { PROC_NAME = 16 }; /* bytes of a program's name, which is truncated to 15 characters */

/* /proc/PID/status of a process or a thread. */
struct proc_status {
	pid_t process; /* that the thread belongs to (Tgid) */
	pid_t parent;
	char name[PROC_NAME];
	char state;	  /* R S D T t Z X, as ps(1) shows it */
	bool exiting;	  /* is exiting and has already closed its descriptors */
	bool dumping;	  /* is dumping core */
	uint64_t pending; /* signals for this thread or its process, not delivered yet */
	uint64_t blocked, ignored, caught;
};

/* Reads the status; pid may be a thread ID. Returns 0, or -errno: -ENOENT if there is no such
 * process. Unlike most files of a process, this one may be read while the process waits for our
 * reply to a FLUSH: reading others can block on locks that it holds. */
int proc_status(pid_t pid, struct proc_status *s);
/* Stores the name of a process or a thread. Returns 0 or -errno. Much faster than its status. */
int proc_name(pid_t pid, char name[static PROC_NAME]);
/* Has the process exited, or is it exiting with its descriptors already closed? False if that
 * cannot be known. */
bool proc_has_ended(pid_t pid);
/* The same, or it is about to: SIGKILL has been sent to it. */
bool proc_is_ending(pid_t pid);
/* How a process that is `exiting` ends. Returns the signal that kills it (including one that dumps
 * core, which leaves no other trace), or 0 for a normal exit or if we may not know. Call it only
 * for an exiting process: for any other, reading this file may block on the process itself. */
int proc_exit_signal(pid_t pid);
/* Has a process (or thread) a descriptor open for writing on a file with this inode number? Returns
 * 1 or 0; or -errno, -E2BIG if it has none among its first `most` descriptors, and more. May be
 * called while the process waits for us, as the next three. */
int proc_writes(pid_t pid, uint64_t ino, int most);
/* Has a process (or thread) open descriptors? Then it is not `exiting`. False also if the kernel
 * does not say (before 6.2). */
bool proc_has_descriptors(pid_t pid);
/* Has a process no threads but its main thread? False if that cannot be known. */
bool proc_has_one_thread(pid_t pid);
/* Is it the ID of a process, not of another thread than its main one? False also if we may not send
 * it signals. Much faster than its status. */
bool proc_is_process(pid_t pid);
/* Closes all descriptors of this process from first on, even if the kernel (before 5.9) has no
 * close_range. first > 0. */
void proc_close_from(int first);
/* Undoes what a parent process may have left: makes sure that 0, 1 and 2 are open, so that no other
 * file gets their numbers; that SIGCHLD is delivered; and that a write over the file size limit
 * fails with EFBIG instead of raising a signal. */
void proc_begin(void);
/* Distinguishes a process from a later one with the same pid, if the kernel can (6.9 and newer).
 * Returns 0 if there is no such process. */
uint64_t proc_identity(pid_t pid);
/* When a process started, in clock ticks (sysconf(_SC_CLK_TCK)) of CLOCK_BOOTTIME; 0 if there is no
 * such process. */
uint64_t proc_started(pid_t pid);
/* The parent of a process; 0 if there is no such process. */
pid_t proc_parent(pid_t pid);
typedef void proc_child_fn(pid_t child, void *arg);

/* Calls fn for each child of a process, those of all its threads. Returns 0 if these are all,
 * -ENOENT if the process has ended, or this kernel has no lists of children, or -errno if one could
 * not be read. */
int proc_children(pid_t pid, proc_child_fn *fn, void *arg);
/* What a process runs: the name of its program, and behind an interpreter that of its script. The
 * caller owns it; "" if there is no such process. */
char *proc_program(pid_t pid);

/* A line of /proc/self/mountinfo. The strings are valid until the callback returns. */
struct proc_mount {
	const char *device; /* "0:53" */
	const char *where;  /* the mount point, unescaped */
	const char *type;   /* "fuse.ddipfs" */
};

/* Decodes in place the \ooo escapes (for blanks and the like) in a path of /proc/self/mountinfo. */
void proc_mount_path(char *path);

typedef bool proc_mount_fn(const struct proc_mount *m, void *arg);

/* Calls fn for each mount, the lowest first, until it returns true. Returns 1 if it did, 0 if it
 * never did, or -errno if the table cannot be read. */
int proc_mounts(proc_mount_fn *fn, void *arg);

#endif
