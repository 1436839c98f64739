/* Fids: a client's numbers for files that it has walked to, and maybe opened. */
#ifndef FID_H
#define FID_H
#include "ninep/message.h"
#include "tree/tree.h"

struct listing;

enum { FID_BUCKETS = 64, FIDS_MAX = 16384 };

struct fid {
	uint32_t number;
	struct node *node;	 /* one lookup */
	struct file *file;	 /* open; NULL: not, or a directory */
	struct listing *listing; /* an open directory; NULL: none */
	size_t next_entry;	 /* 9P2000: where reading the directory goes on, … */
	uint64_t next_offset;	 /* … if this is the offset */
	int refs;		 /* the table's, calls' */
	LIST_ENTRY(fid) link;
};

/* Those of one connection. Zero-initialised is empty. */
struct fid_table {
	LIST_HEAD(, fid) buckets[FID_BUCKETS];
	size_t n;
};

/* NULL: there is none. */
struct fid *fid_find(struct fid_table *t, uint32_t number);
/* One for a node, whose lookup it takes over. 0, or -errno: the number is in use, there are too
 * many (the lookup is given back). */
int fid_add(struct fid_table *t, uint32_t number, struct node *n);
/* It is in the table no more; calls may hold it still. */
void fid_drop(struct fid_table *t, struct fid *f);
/* The first that there is, NULL: none. */
struct fid *fid_first(struct fid_table *t);
struct fid *fid_ref(struct fid *f);
void fid_unref(struct fid *f); /* NULL-safe; the last one closes what is open */
bool fid_is_open(const struct fid *f);
/* A node of one's own for what n stands for, one lookup more. */
struct node *fid_node(struct node *n);
struct ninep_qid fid_qid(const struct node *n);

#endif
