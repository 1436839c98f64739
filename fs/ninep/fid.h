/* Fids: a client's numbers for files that it has walked to, and perhaps opened. */
#ifndef FID_H
#define FID_H
#include "ninep/message.h"
#include "tree/tree.h"

struct listing;

enum { FID_BUCKETS = 64, FIDS_MAX = 16384 };

struct fid {
	uint32_t number;
	struct node *node;	 /* holds one lookup */
	struct file *file;	 /* the open file; NULL if not open, or a directory */
	struct listing *listing; /* the open directory, or NULL */
	bool opening;		 /* an open is pending, which uses the node */
	size_t next_entry;	 /* 9P2000: where the next read of the directory continues, … */
	uint64_t next_offset;	 /* … if this is the offset */
	int refs;		 /* from the table and from calls */
	LIST_ENTRY(fid) link;
};

/* The fids of one connection. Zero-initialised is empty. */
struct fid_table {
	LIST_HEAD(, fid) buckets[FID_BUCKETS];
	size_t n;
};

/* NULL if there is none. */
struct fid *fid_find(struct fid_table *t, uint32_t number);
/* Adds a fid for a node, whose lookup it takes over. Returns 0, or -errno if the number is in use
 * or there are too many (the lookup is then dropped). */
int fid_add(struct fid_table *t, uint32_t number, struct node *n);
/* f stands for n from now on, whose lookup it takes over. It loses its locks. */
void fid_move(struct fid *f, struct node *n);
/* Removes f from the table; calls may still hold it. */
void fid_drop(struct fid_table *t, struct fid *f);
/* The first fid, or NULL if there is none. */
struct fid *fid_first(struct fid_table *t);
struct fid *fid_ref(struct fid *f);
void fid_unref(struct fid *f); /* NULL-safe; the last one closes what is open */
/* The same inside code that may go on to use what is open: it is closed by the loop, or by
 * fid_close_unused(). */
void fid_unref_later(struct fid *f);
void fid_close_unused(void);
bool fid_is_open(const struct fid *f); /* or about to be */
/* A node for the same place as n, private if its row says so. Its lookup count is incremented. */
struct node *fid_node(struct node *n);
struct ninep_qid fid_qid(const struct node *n);

#endif
