/*
 * Staged files: bytes in memory in the vars directories, for programs that write a temporary file
 * and rename it. Their names begin with `.`, end in `~`, are `4913`, or look as mkstemp(3) makes
 * them.
 */
#ifndef STAGED_FILE_H
#define STAGED_FILE_H
#include "tree/tree.h"

/* Is there one of this name? 0 or -ENOENT. */
int staged_find(struct place *at, const char *name);
/* As in struct part. */
bool staged_next(const struct place *at, struct part_cursor *c, struct place *child, char *name);
/* Makes an empty one if there is none. */
void staged_make(const struct place *at, const char *name);
/* Is a file that is created like this a staged one? mode: before the umask, or behind it. */
bool staged_wants(const char *name, int flags, mode_t mode);
int staged_remove(const struct place *at); /* 0 or -ENOENT */
/* mv between names of which one at least is staged; a variable's name is pushed to (from it:
 * copied). Never waits. 0 or -errno. */
int staged_rename(const struct place *from, const struct place *to, struct err *e);
bool staged_concerns(const struct place *from, const struct place *to);

extern const struct file_ops staged_ops;

#endif
