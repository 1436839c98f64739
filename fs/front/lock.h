/* Locks of files, flock(2) and fcntl(2): by path, whatever node each opener was given. */
#ifndef LOCK_H
#define LOCK_H
#include "base/req.h"
#include <sys/types.h>

struct lock {
	uint64_t ino, owner;
	bool whole; /* flock(2), which fcntl's locks do not meet */
	int type;   /* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t first, last;
	pid_t pid;
	TAILQ_ENTRY(lock) link; /* lock.c's */
};

/* A lock of somebody else that is in the way, NULL: none. */
const struct lock *lock_conflict(const struct lock *want);
/* Takes it, or lets go of it (F_UNLCK), if nothing is in the way. */
bool lock_take(const struct lock *want);
/* Parks r until it can be taken. */
void lock_wait(const struct lock *want, struct req *r);

#endif
