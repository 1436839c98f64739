/* Nodes and open files, driven by the rows of names.c: walk, readdir, stat. Knows no FUSE. */
#ifndef TREE_H
#define TREE_H
#include "base/req.h"
#include <sys/stat.h>

struct group;
struct cell;

/* Where in the tree: what the variable parts of a path stand for. */
struct place {
	struct group *g;   /* referenced */
	int rank;	   /* -1: none */
	struct cell *cell; /* referenced; NULL: none */
	char *name;	   /* of a variable with its suffixes, of a rank list; NULL: none */
};

struct file;

/* What a file does. Missing operations: EACCES for open in that direction, 0 for flush and fsync.
 */
struct file_ops {
	int (*open)(struct file *f, struct req *r); /* 0, -errno with r->err, or PARKED */
	void (*read)(struct file *f, struct req *r);
	/* Takes n bytes now: how many, or -errno. Never waits. */
	ssize_t (*write)(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e);
	int (*flush)(struct file *f, struct req *r); /* 0, -errno or PARKED, as fsync */
	int (*fsync)(struct file *f, struct req *r);
	void (*release)(struct file *f);
	unsigned (*poll)(struct file *f); /* POLLIN … ready now */
	int (*truncate)(const struct place *at, struct file *f, uint64_t size, struct err *e);
	uint64_t (*size)(const struct place *at);
	double (*mtime)(const struct place *at);
};

enum row_flags {
	ROW_PRIVATE_NODE = 1, /* a new node for each LOOKUP: every opener has an inode lock of its
				 own; with ROW_CACHEABLE see file_open() */
	ROW_HIDDEN = 2,	      /* found, not listed */
	ROW_SIZED = 4,	      /* a text whose true size stat tells */
	ROW_LIVE = 8,	 /* waits for data: listed as a pipe, though stat says that it is a file */
	ROW_MAPPED = 16, /* bytes that may be mapped */
	ROW_CACHEABLE =
	    32, /* as long as its parent, or until rmdir: the kernel need not ask again */
	ROW_VARIABLES = 64 /* a directory of variables, and of staged files */
};

typedef int text_fn(const struct place *at, struct buf *out, struct err *e);

/* One file of the name space. Parts of a path in capitals stand for many names (names.c,
 * name_parts).
 */
struct row {
	const char *path;
	mode_t mode;
	unsigned flags;
	const struct file_ops *ops; /* NULL: text, generated at open */
	text_fn *text;		    /* of a symlink: its target */
	const char *reading, *writing;
};

extern const struct row name_rows[];
extern const size_t name_count;

enum { ENTRY_NAME_SIZE = 256 };

/* How far a part has been listed. */
struct part_cursor {
	uint64_t at; /* 0 in the beginning */
	void *state; /* NULL in the beginning; if set, so is what frees it */
	void (*free)(void *state);
};

/* A part of a path that stands for many names. */
struct part {
	const char *word; /* as the rows write it */
	/* 0 and at filled (what it refers to is referenced), or -errno */
	int (*find)(struct place *at, const char *name);
	/* The name behind the cursor, into name[ENTRY_NAME_SIZE], and what it stands for into
	 * child (borrowed until the next call); false: no more. NULL: not listed. */
	bool (*next)(
	    const struct place *at, struct part_cursor *c, struct place *child, char *name);
	/* The name that at has for it. */
	void (*print)(const struct place *at, struct buf *out);
};

extern const struct part name_parts[];
extern const size_t name_part_count;

struct node {
	uint64_t ino;	  /* what stat shows; the same for the same path */
	uint64_t lookups; /* that the kernel holds */
	uint64_t generation;
	const struct row *row;
	struct place at;
	uint64_t size; /* ROW_PRIVATE_NODE: set by its open file */
	uint64_t told; /* the size that the kernel was told last */
	int opens;     /* files open on it, or about to be */
	pid_t seeker;  /* the thread that looked it up and has not opened it yet; -1: none */
	bool retried;  /* an open was sent back for a new lookup */
	double mtime;  /* ROW_PRIVATE_NODE */
	TAILQ_ENTRY(node) link;
};

enum { WRITERS_MAX = 8 }; /* of one open file, that are remembered */

struct file {
	struct node *node;
	int flags;		    /* as open(2) */
	pid_t opener;		    /* tgid of who may write; 0: for reading */
	bool by_shell;		    /* the opener is one: it hides errors of close(2) */
	int twins;		    /* other open files of this opener on the same inode */
	pid_t writers[WRITERS_MAX]; /* threads that have written; 0: none */
	const struct file_ops *ops;
	void *state;	   /* of the ops */
	struct buf text;   /* generated at open */
	void *poll_handle; /* these are the session's */
	bool polled;
	TAILQ_ENTRY(file) link, written_link, polled_link;
};

/* A directory that is being listed: begins with all but dir zero. */
struct tree_cursor {
	struct node *dir;
	size_t row;
	struct part_cursor part; /* of that row */
};

struct dir_entry {
	char name[ENTRY_NAME_SIZE];
	mode_t type;
	uint64_t ino;
};

void tree_init(void);
/* Lets go of all nodes: the kernel, which held them, is gone. */
void tree_fini(void);
struct node *tree_root(void);
/* The child of this name, one lookup more; NULL with *error = -ENOENT … */
struct node *tree_lookup(struct node *dir, const char *name, int *error);
/* The node of a row for a place that is known to exist (takes over at's references), one lookup
 * more. */
struct node *tree_node(const struct row *row, struct place at);
void tree_forget(struct node *n, uint64_t lookups);
void tree_stat(struct node *n, struct stat *st);
/* The size that an open file will give, as far as it is known when it is opened; 0: it is not. From
 * now on its node shows it. */
uint64_t tree_open_size(struct file *f);
/* The next entry of a directory; false: the end. What comes and goes meanwhile may be told or not,
 * all else is told once. The steps of a whole listing take n log n. */
bool tree_next(struct tree_cursor *c, struct dir_entry *e);
/* Gives back what the cursor holds, not its directory. */
void tree_cursor_free(struct tree_cursor *c);
/* The row of a directory's child, by the part of the path that it adds in the table. */
const struct row *tree_child(const struct row *dir, const char *part);
/* The path below the mount, for messages. */
void tree_path(const struct node *n, struct buf *out);
/* 0, -errno or PARKED, as the operation of the row. */
int tree_open(struct file *f, struct req *r);
void tree_read(struct file *f, struct req *r);
void tree_release(struct file *f);

/* Does it name a group, or a rank of one, that is no more? Everything at such a place is ENODEV. */
bool place_gone(const struct place *at);
/* -ENODEV, with what is no more in e. Only for a place that is gone. */
int place_fail(const struct place *at, struct err *e);
/* The rank of the place, in G/vars the first that is not external; NULL with e if it is no more. */
struct rank *place_rank(const struct place *at, struct err *e);
void place_ref(struct place *at);
void place_free(struct place *at);

#endif
