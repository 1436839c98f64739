/* FUSE requests about nodes and open files: entries of the session's table. */
#ifndef FILE_H
#define FILE_H
#include <fuse_lowlevel.h>

struct node;
struct request;

/* Opens n for the OPEN or CREATE request c, which is answered now or later. */
void file_open_node(struct request *c, struct node *n);
/* Answers a CREATE. */
void file_answer_create(struct request *c, int result);

void file_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void file_setattr(
    fuse_req_t fr, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);
void file_readlink(fuse_req_t fr, fuse_ino_t ino);
void file_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void file_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void file_write(
    fuse_req_t fr, fuse_ino_t ino, const char *p, size_t n, off_t off, struct fuse_file_info *fi);
/* Only sets the size: memory is not reserved. */
void file_fallocate(
    fuse_req_t fr, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi);
void file_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void file_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void file_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void file_poll(
    fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph);

/* Wakes those of poll(2) whose files are ready. */
void file_wake_pollers(void);

#endif
