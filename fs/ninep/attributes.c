/* Messages about attributes, directory entries and links. */
#include "base/daemon.h"
#include "front/front.h"
#include "front/listing.h"
#include "front/open_file.h"
#include "front/entry.h"
#include "ninep/ops.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
	ATTRIBUTES = 0x7ff,  /* of getattr: those that every file system has */
	SET_SIZE = 1 << 3,   /* of setattr */
	STAT_FIXED = 39,     /* bytes of a stat before its strings, without its size */
	ID_TEXT = 16,	     /* a user or group ID as text */
	FS_TYPE = 0x01021997 /* the type that statfs(2) reports for 9P */
};

static const uint32_t plain_dir = 0x80000000;
static const char *const dots[] = {".", ".."};

/* ---- 9P2000.L ---- */

int
op_getattr(struct call *c, struct ninep_field *f)
{
	struct ninep_qid q;
	struct stat st;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	tree_stat(c->fid->node, &st);
	q = fid_qid(c->fid->node);
	ninep_put(&c->body, 8, ATTRIBUTES);
	ninep_put_qid(&c->body, &q);
	ninep_put(&c->body, 4, st.st_mode);
	ninep_put(&c->body, 4, st.st_uid);
	ninep_put(&c->body, 4, st.st_gid);
	ninep_put(&c->body, 8, st.st_nlink);
	ninep_put(&c->body, 8, 0); /* device number */
	ninep_put(&c->body, 8, (uint64_t)st.st_size);
	ninep_put(&c->body, 8, (uint64_t)st.st_blksize);
	ninep_put(&c->body, 8, (uint64_t)st.st_blocks);
	for (int i = 0; i < 3; i++) { /* atime, mtime, ctime */
		ninep_put(&c->body, 8, (uint64_t)st.st_mtim.tv_sec);
		ninep_put(&c->body, 8, (uint64_t)st.st_mtim.tv_nsec);
	}
	for (int i = 0; i < 4; i++) /* birth time, generation, version: none */
		ninep_put(&c->body, 8, 0);
	return 0;
}

static int
set_size(struct call *c, uint64_t size)
{
	struct fid *f = c->fid;
	int r = open_file_truncate(f->node, f->file, size, &c->r.err);

	front_journal(f->node, NULL, &c->r.err);
	return r;
}

int
op_setattr(struct call *c, struct ninep_field *f)
{
	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	/* we decide modes, owners and times, as everywhere */
	return f[1].n & SET_SIZE ? set_size(c, f[5].n) : 0;
}

int
op_readlink(struct call *c, struct ninep_field *f)
{
	struct buf target = {0};
	int r;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	if (!S_ISLNK(c->fid->node->row->mode))
		return -EINVAL;
	r = tree_link(c->fid->node, &target, &c->r.err);
	ninep_put_text(&c->body, target.n ? target.p : "");
	buf_free(&target);
	return MIN(r, 0);
}

int
op_statfs(struct call *c, struct ninep_field *f)
{
	struct statvfs st;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	/* reports the free space for the ranks' output */
	if (statvfs(daemon_.state_dir, &st) < 0)
		st = (struct statvfs){.f_bsize = 1};
	ninep_put(&c->body, 4, FS_TYPE);
	ninep_put(&c->body, 4, st.f_bsize);
	ninep_put(&c->body, 8, st.f_blocks);
	ninep_put(&c->body, 8, st.f_bfree);
	ninep_put(&c->body, 8, st.f_bavail);
	ninep_put(&c->body, 8, st.f_files);
	ninep_put(&c->body, 8, st.f_ffree);
	ninep_put(&c->body, 8, 0);
	ninep_put(&c->body, 4, NAME_MAX);
	return 0;
}

int
op_xattrwalk(struct call *c, struct ninep_field *f)
{
	return -EOPNOTSUPP;
}

int
op_xattrcreate(struct call *c, struct ninep_field *f)
{
	return -EOPNOTSUPP;
}

/* The i-th entry, counting . and .. first. */
static const char *
entry(struct listing *l, uint64_t i, struct ninep_qid *q, mode_t *type)
{
	*q = (struct ninep_qid){0};
	*type = S_IFDIR;
	if (i < ARRAY_LEN(dots))
		q->path = tree_root()->ino;
	q->type = NINEP_QID_DIR;
	return i < ARRAY_LEN(dots) ? dots[i]
				   : listing_entry(l, (size_t)i - ARRAY_LEN(dots), &q->path, type);
}

int
op_readdir(struct call *c, struct ninep_field *f)
{
	size_t count = (size_t)MIN(f[2].n, (uint64_t)c->conn->msize - NINEP_HEADER - 4);
	struct buf entries = {0};
	struct ninep_qid q;
	const char *name;
	mode_t type;

	if (call_take_fid(c, f[0].n) < 0 || !c->fid->listing)
		return -EBADF;
	if (f[1].n == 0)
		listing_rewind(c->fid->listing);
	for (uint64_t i = f[1].n;
	     i - f[1].n < LISTING_MAX && (name = entry(c->fid->listing, i, &q, &type)); i++) {
		size_t before = entries.n;

		q.type = S_ISDIR(type) ? NINEP_QID_DIR : S_ISLNK(type) ? NINEP_QID_LINK : 0;
		ninep_put_qid(&entries, &q);
		ninep_put(&entries, 8, i + 1);
		ninep_put(&entries, 1, IFTODT(type));
		ninep_put_text(&entries, name);
		if (entries.n > count) {
			entries.n = before;
			break;
		}
	}
	ninep_put(&c->body, 4, entries.n);
	buf_add(&c->body, entries.n ? entries.p : "", entries.n);
	buf_free(&entries);
	return 0;
}

/* ---- 9P2000 ---- */

/* The stat of a node, preceded by its size. */
static void
put_stat(struct buf *out, struct node *n, const char *name)
{
	struct ninep_qid q = fid_qid(n);
	char uid[ID_TEXT], gid[ID_TEXT];
	struct stat st;

	tree_stat(n, &st);
	snprintf(uid, sizeof(uid), "%u", (unsigned)st.st_uid);
	snprintf(gid, sizeof(gid), "%u", (unsigned)st.st_gid);
	ninep_put(out, 2, STAT_FIXED + 4 * 2 + strlen(name) + 2 * strlen(uid) + strlen(gid));
	ninep_put(out, 2, 0); /* type, dev: for the kernel's use */
	ninep_put(out, 4, 0);
	ninep_put_qid(out, &q);
	ninep_put(out, 4, (st.st_mode & ACCESSPERMS) | (S_ISDIR(st.st_mode) ? plain_dir : 0));
	ninep_put(out, 4, (uint64_t)st.st_atim.tv_sec);
	ninep_put(out, 4, (uint64_t)st.st_mtim.tv_sec);
	ninep_put(out, 8, S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_size);
	ninep_put_text(out, name);
	ninep_put_text(out, uid);
	ninep_put_text(out, gid);
	ninep_put_text(out, uid);
}

int
op_stat(struct call *c, struct ninep_field *f)
{
	struct buf path = {0}, stat = {0};
	const char *slash;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	tree_path(c->fid->node, &path);
	slash = path.n ? strrchr(path.p, '/') : NULL;
	put_stat(&stat, c->fid->node, slash ? slash + 1 : path.n ? path.p : "/");
	ninep_put(&c->body, 2, stat.n);
	buf_add(&c->body, stat.p, stat.n);
	buf_free(&path);
	buf_free(&stat);
	return 0;
}

int
op_wstat(struct call *c, struct ninep_field *f)
{
	/* size type dev qid[3] mode atime mtime length name uid gid muid */
	struct ninep_field s[NINEP_FIELDS_MAX];
	const struct ninep_field *length = &s[9], *name = &s[10];
	int r = 0;

	if (call_take_fid(c, f[0].n) < 0)
		return -EBADF;
	if (ninep_unpack("2241484448ssss", f[1].s, s) < 0)
		return -EBADMSG;
	if (length->n != UINT64_MAX)
		r = set_size(c, length->n);
	if (r == 0 && name->s.n)
		r = op_rename_in_place(c, name->s);
	return r;
}

int
op_read_dir(struct call *c, uint64_t offset, size_t count)
{
	struct fid *f = c->fid;
	struct buf entries = {0};
	const char *name;
	uint64_t ino;
	mode_t type;

	if (offset == 0) {
		listing_rewind(f->listing);
		f->next_entry = 0;
	} else if (offset != f->next_offset) {
		return fail(&c->r.err, EINVAL,
		    "a directory can be read from 0, or from where the last read ended");
	}
	for (size_t last = f->next_entry + LISTING_MAX;
	     f->next_entry < last && (name = listing_entry(f->listing, f->next_entry, &ino, &type));
	     f->next_entry++) {
		size_t before = entries.n;
		struct node *n = entry_known(f->node, name);

		if (!n)
			continue; /* removed in the meantime */
		put_stat(&entries, n, name);
		tree_forget(n, 1);
		if (entries.n > count) {
			entries.n = before;
			break;
		}
	}
	f->next_offset = offset + entries.n;
	ninep_put(&c->body, 4, entries.n);
	buf_add(&c->body, entries.n ? entries.p : "", entries.n);
	buf_free(&entries);
	return 0;
}
