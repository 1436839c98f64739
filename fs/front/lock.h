/* File locks, flock(2) and fcntl(2): by path, whichever node each opener has. */
#ifndef LOCK_H
#define LOCK_H
#include "base/req.h"
#include <sys/types.h>

struct lock {
	uint64_t ino, owner;
	bool whole; /* flock(2); does not conflict with fcntl locks */
	int type;   /* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t first, last;
	pid_t pid;
	TAILQ_ENTRY(lock) link; /* private to lock.c */
};

/* A lock of another owner that conflicts with it, or NULL. */
const struct lock *lock_conflict(const struct lock *want);
/* Takes the lock, or releases it (F_UNLCK), unless another lock conflicts. Returns whether it
 * did. */
bool lock_take(const struct lock *want);
/* Parks r until the lock has been taken. */
void lock_wait(const struct lock *want, struct req *r);

#endif
