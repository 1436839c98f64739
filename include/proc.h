/* What the kernel says in /proc about one process or thread, and about the mounts that we see. */
#ifndef PROC_H
#define PROC_H
#include "util.h"
#include <sys/types.h>

/* The bit of a signal in the sets below. */
#define PROC_SIGNAL(signo) (UINT64_C(1) << ((signo)-1))

/* /proc/PID/status of a process or a thread. */
struct proc_status {
	pid_t process; /* that a thread belongs to (Tgid) */
	pid_t parent;
	char name[16];	  /* of the program, cut to 15 characters */
	char state;	  /* R S D T t Z X, as ps(1) shows it */
	bool exiting;	  /* it ends, and has given up its descriptors already */
	bool dumping;	  /* it is being written to a core file */
	uint64_t pending; /* signals for this thread or its process, not delivered yet */
	uint64_t blocked, ignored, caught;
};

/* Reads it; pid may be a thread's number. 0, or -errno: -ENOENT if there is no such process. Of all
 * files of a process this is the one that may be read while the process waits for us in a FLUSH:
 * others can wait for locks that it holds. */
int proc_status(pid_t pid, struct proc_status *s);
/* Whether a process has ended, or ends and has given up its descriptors already. */
bool proc_has_ended(pid_t pid);
/* How a process that is `exiting` ends: the signal that kills it (also one that dumps a core, which
 * leaves no other trace), 0 for a plain exit or if we may not know. Only for one that is exiting:
 * of another this file may wait for the process itself. */
int proc_exit_signal(pid_t pid);
/* How many descriptors for writing a process (or thread) has on files of this inode number; -errno,
 * -E2BIG if it has more than `most` descriptors. May be asked while the process waits for us. */
int proc_writes(pid_t pid, uint64_t ino, int most);
/* Closes all descriptors of this process from this one on, also where the kernel (before 5.9) has
 * no close_range. first > 0. */
void proc_close_from(int first);
/* Undoes what a caller may have left: 0, 1 and 2 are open, so that no other file gets their
 * numbers; SIGCHLD comes; and a write over the limit of file sizes is EFBIG, no signal. */
void proc_begin(void);
/* What tells a process from a later one of its number, where the kernel does (6.9 and newer); 0:
 * there is no such process. */
uint64_t proc_identity(pid_t pid);
/* The parent of a process, 0: there is no such process. */
pid_t proc_parent(pid_t pid);

/* A line of /proc/self/mountinfo; the texts live until the callback returns. */
struct proc_mount {
	const char *device; /* "0:53" */
	const char *where;  /* the mount point, blanks and the like made plain */
	const char *type;   /* "fuse.ddipfs" */
};

/* A path of /proc/self/mountinfo, where blanks and the like are \ooo, made plain in place. */
void proc_mount_path(char *path);

typedef bool proc_mount_fn(const struct proc_mount *m, void *arg);

/* Calls fn for each mount, the lowest first, until it gives true. 1: it did; 0: it never did;
 * -errno: the table can't be read. */
int proc_mounts(proc_mount_fn *fn, void *arg);

#endif
