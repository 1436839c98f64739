/* Open files, whichever front end opened them. */
#ifndef OPEN_FILE_H
#define OPEN_FILE_H
#include "tree/tree.h"

/* An open file of n, which is still to be opened. opener: the process that may write it, 0: none,
 * or its front end knows itself which close is the last; by_shell: it is one. */
struct file *open_file_new(struct node *n, int flags, pid_t opener, bool by_shell);
void open_file_free(struct file *f);
/* What it stands for is no more: ENODEV is the answer to all. */
bool open_file_gone(const struct file *f);
/* Opens it for r. 0, -errno or PARKED. */
int open_file_open(struct file *f, struct req *r);
/* Takes n bytes: how many, or -errno. */
ssize_t open_file_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e);
/* One of its operations flush and fsync (NULL: 0) for r. 0, -errno or PARKED. */
int open_file_sync(struct file *f, struct req *r, int (*fn)(struct file *f, struct req *r));
/* Cuts or grows a node's file to this size; f: that it is open as, NULL: it is not. 0 or -errno. */
int open_file_truncate(const struct node *n, struct file *f, uint64_t size, struct err *e);
/* Who opens a live file with O_NOFOLLOW copies a tree (cp -r, rsync): it gets what is there, and
 * then the end. The flags of an open file with that in them. */
int open_file_flags(const struct file *f);
/* Is -EAGAIN, the result of a read, such an end? */
bool open_file_ends(const struct file *f, int result);

#endif
