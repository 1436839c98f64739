/* FUSE requests about names in directories, rows of fuse_ops. */
#ifndef ENTRY_H
#define ENTRY_H
#include <fuse_lowlevel.h>

struct node;

/* What the kernel is to know of a node it was given. */
void entry_of(struct node *n, struct fuse_entry_param *e);

void entry_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name);
void entry_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n);
void entry_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *forgets);
void entry_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void entry_readdir(
    fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void entry_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void entry_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode);
void entry_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name);
void entry_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void entry_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name);
void entry_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
    const char *to, unsigned flags);
void entry_symlink(fuse_req_t fr, const char *link, fuse_ino_t parent, const char *name);
void entry_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void entry_create(
    fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
/* Lets go of open directories: the kernel, which held them, is gone. */
void entry_fini(void);

#endif
