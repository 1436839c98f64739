/*
 * Messages of 9P2000 and 9P2000.L, after Plan 9's intro(5) and the kernel's v9fs:
 *
 *   size[4] type[1] tag[2] body
 *
 * Little-endian; size is that of the whole frame. In the format of a body 1, 2, 4 and 8 are
 * integers of that many bytes; s is a string or the bytes of a stat: length[2], then that many
 * bytes; d is data: length[4], then that many bytes; w is a list of names: count[2], then that many
 * s; * is whatever follows. The type of a reply is that of its message plus 1. Knows no
 * connections: see call.h.
 */
#ifndef MESSAGE_H
#define MESSAGE_H
#include "util.h"

enum {
	NINEP_HEADER = 7,
	NINEP_NO_TAG = 0xffff,
	NINEP_RLERROR = 7, /* 9P2000.L: the error reply to any message */
	NINEP_RERROR = 107,
	NINEP_FIELDS_MAX = 14, /* in a stat */
	NINEP_NAMES_MAX = 16   /* in one walk */
};

/* The dialects that have a message: 9P2000, 9P2000.L, both. */
enum ninep_dialect { NINEP_PLAIN = 1, NINEP_L = 2, NINEP_BOTH = 3 };

/*
 *    name        type  dialect      body          fields
 */
/* clang-format off */
#define NINEP_MESSAGES(X) \
	X(statfs,        8, NINEP_L,     "4",          "fid") \
	X(lopen,        12, NINEP_L,     "44",         "fid flags") \
	X(lcreate,      14, NINEP_L,     "4s444",      "fid name flags mode gid") \
	X(symlink,      16, NINEP_L,     "4ss4",       "dir name target gid") \
	X(mknod,        18, NINEP_L,     "4s4444",     "dir name mode major minor gid") \
	X(rename,       20, NINEP_L,     "44s",        "fid dir name") \
	X(readlink,     22, NINEP_L,     "4",          "fid") \
	X(getattr,      24, NINEP_L,     "48",         "fid mask") \
	X(setattr,      26, NINEP_L,     "4444488888", "fid valid mode uid gid size atime nsec mtime nsec") \
	X(xattrwalk,    30, NINEP_L,     "44s",        "fid newfid name") \
	X(xattrcreate,  32, NINEP_L,     "4s84",       "fid name size flags") \
	X(readdir,      40, NINEP_L,     "484",        "fid offset count") \
	X(fsync,        50, NINEP_L,     "4*",         "fid") \
	X(lock,         52, NINEP_L,     "414884s",    "fid type flags start length process client") \
	X(getlock,      54, NINEP_L,     "41884s",     "fid type start length process client") \
	X(link,         70, NINEP_L,     "44s",        "dir fid name") \
	X(mkdir,        72, NINEP_L,     "4s44",       "dir name mode gid") \
	X(renameat,     74, NINEP_L,     "4s4s",       "dir name todir to") \
	X(unlinkat,     76, NINEP_L,     "4s4",        "dir name flags") \
	X(version,     100, NINEP_BOTH,  "4s",         "msize version") \
	X(auth,        102, NINEP_BOTH,  "4ss*",       "afid user tree") \
	X(attach,      104, NINEP_BOTH,  "44ss*",      "fid afid user tree") \
	X(flush,       108, NINEP_BOTH,  "2",          "oldtag") \
	X(walk,        110, NINEP_BOTH,  "44w",        "fid newfid names") \
	X(open,        112, NINEP_PLAIN, "41",         "fid mode") \
	X(create,      114, NINEP_PLAIN, "4s41",       "fid name perm mode") \
	X(read,        116, NINEP_BOTH,  "484",        "fid offset count") \
	X(write,       118, NINEP_BOTH,  "48d",        "fid offset data") \
	X(clunk,       120, NINEP_BOTH,  "4",          "fid") \
	X(remove,      122, NINEP_BOTH,  "4",          "fid") \
	X(stat,        124, NINEP_PLAIN, "4",          "fid") \
	X(wstat,       126, NINEP_PLAIN, "4s",         "fid stat")

/* clang-format on */

struct ninep_message {
	uint8_t type;
	uint16_t tag;
	struct slice body;
};

/* A field of a body. n: the integer, or the number of names; s: the bytes, of all names if w. */
struct ninep_field {
	uint64_t n;
	struct slice s;
};

/* The type in a qid: what kind of file it is. */
enum { NINEP_QID_DIR = 0x80, NINEP_QID_LINK = 0x02 };

struct ninep_qid {
	uint8_t type;
	uint64_t path;
};

/* Parses the frame at p; m points into p. Returns its length, 0 if more bytes are needed, or
 * -EBADMSG if it is malformed or longer than max. */
long ninep_frame(const char *p, size_t n, uint32_t max, struct ninep_message *m);
/* Unpacks the fields of a body of this format. Returns 0, or -EBADMSG if it does not match
 * exactly. */
int ninep_unpack(const char *format, struct slice body, struct ninep_field f[NINEP_FIELDS_MAX]);
/* Removes the first name from a field w and returns it. */
struct slice ninep_name(struct ninep_field *names);
/* A name as a path component, owned by the caller. NULL if it is not a valid one. */
char *ninep_part(struct slice name);

/* Each appends a field, for replies. */
void ninep_put(struct buf *b, int bytes, uint64_t v);
void ninep_put_text(struct buf *b, const char *s);
void ninep_put_qid(struct buf *b, const struct ninep_qid *q);

#endif
