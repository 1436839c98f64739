/* Nodes and open files, driven by the rows of names.c: lookup, readdir, stat. Knows nothing of
 * FUSE. */
#ifndef TREE_H
#define TREE_H
#include "base/req.h"
#include <sys/stat.h>

struct group;
struct cell;

/* A place in the tree: the values of the variable parts of a path. */
struct place {
	struct group *g;   /* referenced */
	int rank;	   /* -1: none */
	struct cell *cell; /* referenced; NULL: none */
	int frame;	   /* of the user's code in the rank; see FRAME_ALL; 0: none */
	/* an object that is shown as a directory: NAME/KEY/…, the names of files; NULL: none */
	char *inside;
	char *name; /* a variable or a key with its suffixes, or a rank list; NULL: none */
};

/* Values of frame: all of them, the innermost first; or from FRAME_FIRST on, the innermost, one. */
enum { FRAME_ALL = 1, FRAME_FIRST = 2 };

struct file;

/* A file's operations. Defaults for missing ones: open, flush and fsync return 0; read returns the
 * text generated at open; write fails with EACCES. */
struct file_ops {
	int (*open)(struct file *f, struct req *r); /* 0, -errno with r->err, or PARKED */
	void (*read)(struct file *f, struct req *r);
	/* Accepts up to n bytes now. Returns how many, or -errno. Does not block. */
	ssize_t (*write)(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e);
	/* An on_done() for writes that fail; may be NULL. */
	bool (*refused)(struct req *r, int result);
	/* After a write: do the bytes say of themselves that they are all there? Then `complete`
	 * answers the write: 0, -errno or PARKED. */
	bool (*whole)(struct file *f);
	int (*complete)(struct file *f, struct req *r);
	int (*flush)(struct file *f, struct req *r); /* 0, -errno or PARKED; fsync likewise */
	int (*fsync)(struct file *f, struct req *r);
	void (*release)(struct file *f);
	unsigned (*poll)(struct file *f); /* the events ready now: EPOLLIN … */
	int (*truncate)(const struct place *at, struct file *f, uint64_t size, struct err *e);
	uint64_t (*size)(const struct place *at);
	double (*mtime)(const struct place *at);
};

enum row_flags {
	ROW_PRIVATE_NODE = 1, /* each opener has its own node, and with it its own inode lock; with
				 ROW_CACHEABLE see file_open() */
	ROW_HIDDEN = 2,	      /* can be looked up, but is not listed */
	ROW_SIZED = 4,	      /* a text: stat reports its true size */
	ROW_LIVE = 8,	 /* waits for data: listed as a pipe, though stat reports a regular file */
	ROW_MAPPED = 16, /* may be mapped with mmap(2) */
	ROW_CACHEABLE =
	    32, /* exists as long as its parent, or until rmdir: the kernel may cache it */
	ROW_VARIABLES = 64, /* a directory of variables and of staged files */
	ROW_NESTS = 128	    /* a directory that has others of its row in it, which are listed */
};

typedef int text_fn(const struct place *at, struct buf *out, struct err *e);

/* One file of the name space. A part of a path in capitals stands for many names (see name_parts in
 * names.c). */
struct row {
	const char *path;
	mode_t mode;
	unsigned flags;
	/* NULL: text, generated at open. Of a directory: open makes the text by which it is
	 * listed. */
	const struct file_ops *ops;
	text_fn *text; /* for a symlink: its target */
	const char *reading, *writing;
};

extern const struct row name_rows[];
extern const size_t name_count;

enum { ENTRY_NAME_SIZE = 256 };

/* Progress of listing a part. */
struct part_cursor {
	struct slice found; /* the text of the directory, if its row has operations */
	uint64_t at;	    /* 0 at the start */
	void *state;	    /* NULL at the start; if set, so is the function that frees it */
	void (*free)(void *state);
};

/* A part of a path that stands for many names. */
struct part {
	const char *word; /* as in the rows' paths */
	/* Fills in at, with references taken, and returns 0, or -errno. */
	int (*find)(struct place *at, const char *name);
	/* Writes the name after the cursor to name[ENTRY_NAME_SIZE], and what it stands for to
	 * child (borrowed until the next call). Returns false if there are no more. NULL: not
	 * listed. */
	bool (*next)(
	    const struct place *at, struct part_cursor *c, struct place *child, char *name);
	/* Prints the name that at has for this part. */
	void (*print)(const struct place *at, struct buf *out);
};

extern const struct part name_parts[];
extern const size_t name_part_count;

struct node {
	uint64_t ino;	  /* shown by stat; the same for the same path */
	uint64_t lookups; /* references that the kernel holds */
	uint64_t generation;
	const struct row *row;
	struct place at;
	uint64_t size; /* ROW_PRIVATE_NODE: set by its open file */
	uint64_t told; /* the size last reported to the kernel */
	int opens;     /* open files, including those about to be opened */
	pid_t seeker;  /* the thread that looked it up but has not opened it yet; 0: not known; -1:
			  it was opened */
	bool retried;  /* an open failed with ESTALE, to force a new lookup */
	double mtime;  /* ROW_PRIVATE_NODE */
	TAILQ_ENTRY(node) link;
};

enum { WRITERS_MAX = 8 }; /* threads remembered per open file */

struct file {
	struct node *node;
	int flags; /* as for open(2); O_PATH: nothing is read or written, nothing is made for it */
	pid_t opener; /* TGID of the process that may write; 0: read-only */
	uid_t opener_uid;
	struct stderr_of *err;	    /* of the last of the writers below; NULL: not known */
	int twins;		    /* other open files of this opener on the same inode */
	pid_t writers[WRITERS_MAX]; /* threads that have written; 0: unused */
	const struct file_ops *ops;
	void *state;	     /* owned by the ops */
	struct buf text;     /* generated at open */
	struct ahead *ahead; /* of its reader */
	void *poll_handle;   /* the session's, as is polled */
	bool polled;
	TAILQ_ENTRY(file) link, written_link, polled_link;
};

/* A directory being listed: initially, everything but dir is zero. */
struct tree_cursor {
	struct node *dir;
	struct slice found; /* its text, if its row has operations */
	size_t row;
	struct part_cursor part; /* of that row */
};

struct dir_entry {
	char name[ENTRY_NAME_SIZE];
	mode_t type;
	uint64_t ino;
};

void tree_init(void);
/* Frees all nodes: the kernel, which held them, has disconnected. */
void tree_fini(void);
struct node *tree_root(void);
/* Returns the child of this name, with one more lookup; or NULL with *error = -ENOENT … */
struct node *tree_lookup(struct node *dir, const char *name, int *error);
/* Returns the node of a row for a place known to exist, with one more lookup. Takes ownership of
 * at's references. */
struct node *tree_node(const struct row *row, struct place at);
/* For a lookup of this thread (0: not known) that has found n. A private node that nobody has open,
 * or is about to open, stands for the name once more: it is what the kernel remembers, and with
 * another one it would ask again. Returns that one in place of n, or n. */
struct node *tree_looked_up(struct node *n, pid_t seeker);
void tree_forget(struct node *n, uint64_t lookups); /* NULL-safe */
/* Adds the names, each with its NUL, of the nodes right below a group's directory. */
void tree_children(const struct node *dir, struct buf *names);
/* The group has been removed, or a node of one is no longer open: what the kernel does not forget
 * holds no memory of the group. */
void tree_remove_group(const struct group *g);
void tree_closed(struct node *n);
void tree_stat(struct node *n, struct stat *st);
/* The number of bytes that an open file will return, as far as it is known at open; 0 if unknown. A
 * private node shows that size from now on. */
uint64_t tree_open_size(struct file *f);
/* Returns the next entry of a directory; false at the end. Entries that appear or vanish meanwhile
 * may or may not be listed; all others are listed exactly once. Listing all n takes n log n
 * steps. */
bool tree_next(struct tree_cursor *c, struct dir_entry *e);
/* Releases what the cursor holds, but not its directory. */
void tree_cursor_free(struct tree_cursor *c);
/* The row of a directory's child, by the last part of its path in the table. */
const struct row *tree_child(const struct row *dir, const char *part);
/* Prints the target of a symbolic link. Returns 0 or -errno. */
int tree_link(const struct node *n, struct buf *out, struct err *e);
/* Prints the path relative to the mount point, for messages. */
void tree_path(const struct node *n, struct buf *out);
/* Returns 0, -errno or PARKED, as the row's open operation does. */
int tree_open(struct file *f, struct req *r);
void tree_read(struct file *f, struct req *r);
void tree_release(struct file *f);

/* Does the place name a group, or a rank of one, that no longer exists? All operations on it then
 * fail with ENODEV. */
bool place_gone(const struct place *at);
/* Returns -ENODEV, with e saying what no longer exists. Only for a place that is gone. */
int place_fail(const struct place *at, struct err *e);
/* The rank of the place; for G/vars, the first rank that is not external. NULL with e if it no
 * longer exists. */
struct rank *place_rank(const struct place *at, struct err *e);
void place_ref(struct place *at);
void place_free(struct place *at);

#endif
