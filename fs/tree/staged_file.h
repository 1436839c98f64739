/*
 * Staged files: files in memory in the vars directories, for programs that write a temporary file
 * and rename it. Their names begin with `.`, end in `~`, are `4913`, or are created the way
 * mkstemp(3) does.
 */
#ifndef STAGED_FILE_H
#define STAGED_FILE_H
#include "tree/tree.h"

/* Does a staged file of this name exist? Returns 0 or -ENOENT. */
int staged_find(struct place *at, const char *name);
/* As in struct part. */
bool staged_next(const struct place *at, struct part_cursor *c, struct place *child, char *name);
/* Creates an empty one unless it exists. */
void staged_make(const struct place *at, const char *name);
/* Should a file that is created with these arguments be a staged one? mode may be before or after
 * the umask. */
bool staged_wants(const char *name, int flags, mode_t mode);
int staged_remove(const struct place *at); /* 0 or -ENOENT */
/* Renames a file where at least one of the names is a staged one. A staged file that gets a
 * variable's name is pushed; a variable that gets a staged name is copied. Does not block. Returns
 * 0 or -errno. */
int staged_rename(const struct place *from, const struct place *to, struct err *e);
bool staged_concerns(const struct place *from, const struct place *to);

extern const struct file_ops staged_ops;

#endif
