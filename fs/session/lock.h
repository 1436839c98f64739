/* FUSE requests about file locks: flock(2) and fcntl(2). */
#ifndef SESSION_LOCK_H
#define SESSION_LOCK_H
#include <fuse_lowlevel.h>

/* Entries of the session's table. */
void lock_flock(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, int op);
void lock_get(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
void lock_set(
    fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
/* A process has closed a descriptor: releases its fcntl locks on that file, as POSIX requires. */
void lock_closed(fuse_ino_t ino, const struct fuse_file_info *fi);
/* An open file is released: releases its flock. */
void lock_released(fuse_ino_t ino, const struct fuse_file_info *fi);

#endif
