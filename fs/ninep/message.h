/*
 * Messages of 9P2000 and 9P2000.L, after Plan 9's intro(5) and the kernel's v9fs:
 *
 *   size[4] type[1] tag[2] body
 *
 * Little-endian; size counts all of the frame. In a body: 1 2 4 8 are integers of that many bytes,
 * s is a text or the bytes of a stat, as length[2] and then that many bytes, d are bytes, as
 * length[4] and then those, w are names, as count[2] and then so many s, * is whatever follows. The
 * reply to a message has the type behind its own. Knows no connection: see connection.h.
 */
#ifndef MESSAGE_H
#define MESSAGE_H
#include "util.h"

enum {
	NINEP_HEADER = 7,
	NINEP_NO_TAG = 0xffff,
	NINEP_RLERROR = 7, /* of 9P2000.L: its only answer that is no reply's */
	NINEP_RERROR = 107,
	NINEP_FIELDS_MAX = 14, /* of a stat */
	NINEP_NAMES_MAX = 16   /* of one walk */
};

/* Who speaks a message: 9P2000, 9P2000.L, both. */
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

/* A field of a body: n is the integer, the count of names; s the bytes, of all the names. */
struct ninep_field {
	uint64_t n;
	struct slice s;
};

/* What the kind of a file says of it in a qid. */
enum { NINEP_QID_DIR = 0x80, NINEP_QID_LINK = 0x02 };

struct ninep_qid {
	uint8_t type;
	uint64_t path;
};

/* The frame at p: 0 if more bytes are needed, its length, or -EBADMSG: it is none, or longer than
 * max. m points into p. */
long ninep_frame(const char *p, size_t n, uint32_t max, struct ninep_message *m);
/* The fields of a body of this form. -EBADMSG: it is not exactly so. */
int ninep_unpack(const char *format, struct slice body, struct ninep_field f[NINEP_FIELDS_MAX]);
/* The first of the names of a field w, which loses it. */
struct slice ninep_name(struct ninep_field *names);
/* A name as one part of a path, the caller's: NULL if it can be none. */
char *ninep_part(struct slice name);

/* Fields behind one another, for replies. */
void ninep_put(struct buf *b, int bytes, uint64_t v);
void ninep_put_text(struct buf *b, const char *s);
void ninep_put_qid(struct buf *b, const struct ninep_qid *q);

#endif
