/* The entries read so far from an open directory: an index always means the same entry, until a
 * rewind. Entries are made on demand. */
#include "front/listing.h"
#include <stdlib.h>
#include <string.h>

struct listing {
	struct tree_cursor cursor;
	struct file text; /* of the directory, if its row has operations */
	struct buf names; /* with their NULs */

	struct listed {
		size_t name; /* offset in names */
		uint64_t ino;
		mode_t type;
	} * entries;

	size_t n, capacity;
	TAILQ_ENTRY(listing) link;
};

static TAILQ_HEAD(, listing) listings = TAILQ_HEAD_INITIALIZER(listings);

/* Makes the entries up to the i-th. Returns false if there are fewer. */
static bool
reach(struct listing *l, size_t i)
{
	struct dir_entry e;

	l->cursor.found = (struct slice){l->text.text.p, l->text.text.n};
	while (l->n <= i) {
		if (!tree_next(&l->cursor, &e))
			return false;
		if (l->n == l->capacity) {
			l->capacity = MAX(l->capacity * 2, (size_t)32);
			l->entries = xrealloc(l->entries, l->capacity * sizeof(*l->entries));
		}
		l->entries[l->n++] = (struct listed){l->names.n, e.ino, e.type};
		buf_add(&l->names, e.name, strlen(e.name) + 1);
	}
	return true;
}

struct listing *
listing_new(struct node *dir)
{
	struct listing *l = xcalloc(1, sizeof(*l));

	l->cursor.dir = dir;
	TAILQ_INSERT_TAIL(&listings, l, link);
	return l;
}

int
listing_open(struct listing *l, struct req *r)
{
	const struct file_ops *ops = l->cursor.dir->row->ops;

	if (!ops)
		return 0;
	l->text = (struct file){.node = l->cursor.dir, .ops = ops};
	r->file = &l->text;
	return ops->open(&l->text, r);
}

void
listing_rewind(struct listing *l)
{
	struct node *dir = l->cursor.dir;

	tree_cursor_free(&l->cursor);
	l->cursor = (struct tree_cursor){.dir = dir};
	buf_clear(&l->names);
	l->n = 0;
}

const char *
listing_entry(struct listing *l, size_t i, uint64_t *ino, mode_t *type)
{
	if (!reach(l, i))
		return NULL;
	*ino = l->entries[i].ino;
	*type = l->entries[i].type;
	return l->names.p + l->entries[i].name;
}

void
listing_free(struct listing *l)
{
	TAILQ_REMOVE(&listings, l, link);
	tree_cursor_free(&l->cursor);
	buf_free(&l->names);
	buf_free(&l->text.text);
	free(l->entries);
	free(l);
}

void
listing_fini(void)
{
	struct listing *l;

	while ((l = TAILQ_FIRST(&listings)))
		listing_free(l);
}
