/*
 * The least that a FUSE server can do: one file, which is read from one buffer of memory, and whose
 * bytes are thrown away when it is written. What the benchmarks compare transfers with.
 * usage: one_buffer SIZE MOUNTPOINT
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BUFFER = 1 << 20, FILE_INO = FUSE_ROOT_ID + 1 };

static char buffer[BUFFER];
static off_t file_size;

static struct stat
stat_of(fuse_ino_t ino)
{
	struct stat st = {.st_ino = ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2};

	if (ino == FILE_INO)
		st = (struct stat){.st_ino = ino,
		    .st_mode = S_IFREG | 0644,
		    .st_nlink = 1,
		    .st_size = file_size,
		    .st_blksize = BUFFER};
	return st;
}

static struct fuse_entry_param
entry(void)
{
	return (struct fuse_entry_param){.ino = FILE_INO, .attr = stat_of(FILE_INO)};
}

static void
on_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->max_write = BUFFER;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE);
}

static void
on_lookup(fuse_req_t r, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = entry();

	if (strcmp(name, "x") == 0)
		fuse_reply_entry(r, &e);
	else
		fuse_reply_err(r, ENOENT);
}

static void
on_getattr(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st = stat_of(ino);

	fuse_reply_attr(r, &st, 0);
}

static void
on_setattr(fuse_req_t r, fuse_ino_t ino, struct stat *st, int what, struct fuse_file_info *fi)
{
	on_getattr(r, ino, fi);
}

static void
on_open(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	fuse_reply_open(r, fi);
}

static void
on_read(fuse_req_t r, fuse_ino_t ino, size_t n, off_t offset, struct fuse_file_info *fi)
{
	size_t left = offset < file_size ? (size_t)(file_size - offset) : 0;

	n = n < left ? n : left;
	fuse_reply_buf(r, buffer, n < BUFFER ? n : BUFFER);
}

static void
on_write(
    fuse_req_t r, fuse_ino_t ino, const char *p, size_t n, off_t offset, struct fuse_file_info *fi)
{
	fuse_reply_write(r, n);
}

static const struct fuse_lowlevel_ops ops = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .open = on_open,
    .read = on_read,
    .write = on_write,
};

int
main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_session *session;

	if (argc != 3) {
		fprintf(stderr, "usage: one_buffer SIZE MOUNTPOINT\n");
		return 2;
	}
	file_size = (off_t)strtoll(argv[1], NULL, 10);
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session || fuse_session_mount(session, argv[2]) < 0 || fuse_daemonize(0) < 0)
		return 1;
	fuse_session_loop(session);
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	return 0;
}
