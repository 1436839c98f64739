/* FUSE requests about names in directories: entries of the session's table. */
#ifndef DIRECTORY_H
#define DIRECTORY_H
#include <fuse_lowlevel.h>

struct node;
struct request;

void directory_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name);
void directory_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n);
void directory_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *forgets);
void directory_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void directory_readdir(
    fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void directory_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void directory_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode);
void directory_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name);
void directory_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void directory_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name);
void directory_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
    const char *to, unsigned flags);
void directory_symlink(fuse_req_t fr, const char *link, fuse_ino_t parent, const char *name);
void directory_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void directory_create(
    fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
/* Drops what the kernel was still to forget. */
void directory_fini(void);

#endif
