/* Open files, for all front ends. */
#ifndef OPEN_FILE_H
#define OPEN_FILE_H
#include "tree/tree.h"

/* Allocates an open file for n, which is then still to be opened. opener: the process that may
 * write to it; 0 if none may, or if the front end itself knows which close is the last. */
struct file *open_file_new(struct node *n, int flags, pid_t opener);
void open_file_free(struct file *f);
/* Has what f stands for ceased to exist? Then every request on it is answered with ENODEV. */
bool open_file_gone(const struct file *f);
/* Opens f on behalf of r. Returns 0, -errno or PARKED. */
int open_file_open(struct file *f, struct req *r);
/* Writes n bytes. Returns how many were accepted, or -errno. */
ssize_t open_file_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e);
/* Has this write completed an object, so that its complete operation answers it? */
bool open_file_whole(struct file *f);
/* Runs fn, its complete, flush or fsync operation, on behalf of r; NULL: does nothing. Returns 0,
 * -errno or PARKED. */
int open_file_sync(struct file *f, struct req *r, int (*fn)(struct file *f, struct req *r));
/* Truncates or extends the file of a node to this size. f: the open file for it, or NULL. Returns 0
 * or -errno. */
int open_file_truncate(const struct node *n, struct file *f, uint64_t size, struct err *e);
/* A program that opens a live file with O_NOFOLLOW is copying a tree (cp -r, rsync): it gets what
 * is there, and then end of file. Returns the flags of f adjusted to that. */
int open_file_flags(const struct file *f);
/* Does this result of a read, -EAGAIN, mean such an end of file? */
bool open_file_ends(const struct file *f, int result);

#endif
